# Two commands matter: `make demo` (install, build, run the main job) and `make test` (build, run every test).
# The rest: build, cuda (the program with GPU kernels; needs nvcc), bundle, check, asan, fuzz, crash, test-rados, format,
# install, deb, test-long, clean.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)
PROGRAM := build/release/bin/deepinfer
DEEPINFER_ACCELERATOR ?= cpu
PREFIX ?= /usr/local

.PHONY: cuda demo test test-long build bundle check asan tsan fuzz crash test-rados format install deb clean packages test-packages lint-packages

demo: build
	scripts/demo $(PROGRAM)

build: packages
	cmake --preset $(PRESET) -DDEEPINFER_ACCELERATOR=$(DEEPINFER_ACCELERATOR) > /dev/null
	cmake --build $(BUILD) -j $(JOBS) --target deepinfer deepinfer_codec deepinfer_engine_library
	scripts/copy_libraries $(BUILD)

test: test-packages
	cmake --preset release -DDEEPINFER_ACCELERATOR=$(DEEPINFER_ACCELERATOR) > /dev/null
	cmake --build build/release -j $(JOBS)
	scripts/copy_libraries build/release
	scripts/check
	scripts/check_cuda
	ctest --test-dir build/release --output-on-failure -j $(JOBS)

# What does not fit into every run: full counts of faults and streams, many generated requests, 60 s of each fuzz target.
test-long: test-packages lint-packages build
	FAULTS=long OPENAPI_EXAMPLES=300 scripts/test_sdk $(PROGRAM) -s
	WHEEL=source scripts/test_python
	scripts/test_clients $(PROGRAM)
	scripts/fuzz 60 net protocol

bundle: build
	scripts/make_bundle

cuda: packages
	cmake --preset cuda > /dev/null
	cmake --build build/cuda -j $(JOBS) --target deepinfer kernels_test engine_test
	scripts/copy_libraries build/cuda

check: lint-packages
	scripts/check --tidy

asan tsan: test-packages
	cmake --preset $@ > /dev/null
	cmake --build build/$@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -j $(JOBS)

fuzz: lint-packages test-packages
	scripts/fuzz

# The store is killed at five hundred points of a write workload and must have kept what it acknowledged.
crash: test-packages
	cmake --preset release > /dev/null
	cmake --build build/release -j $(JOBS) --target store_test
	build/release/bin/store_test --gtest_also_run_disabled_tests --gtest_filter='StoreCrash.DISABLED_*'

# The conformance suite and a stopped device on a real Ceph cluster of twelve OSDs on this machine.
test-rados: build
	scripts/install_packages ceph
	scripts/test_rados $(PROGRAM)

format: lint-packages
	find src cmake -name '*.cc' -o -name '*.h' | xargs clang-format-14 -i

install: build
	scripts/install $(PREFIX) $(DESTDIR)

deb: build
	scripts/make_deb

clean:
	rm -rf build/release build/debug build/asan build/tsan build/fuzz build/cuda build/check_cuda dist

packages:
	@scripts/install_packages build
test-packages:
	@scripts/install_packages test
lint-packages:
	@scripts/install_packages lint
