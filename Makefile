# Two commands matter: `make demo` (install, build, run the main job) and `make test` (build, run every test).
# The rest: build, bundle, check, asan, fuzz, format, install, clean.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)
PROGRAM := build/release/bin/deepinfer
DEEPINFER_ACCELERATOR ?= cpu
PREFIX ?= /usr/local

.PHONY: demo test build bundle check asan tsan fuzz format install clean packages test-packages lint-packages

demo: build
	scripts/demo $(PROGRAM)

build: packages
	cmake --preset $(PRESET) -DDEEPINFER_ACCELERATOR=$(DEEPINFER_ACCELERATOR) > /dev/null
	cmake --build $(BUILD) -j $(JOBS) --target deepinfer deepinfer_codec
	scripts/copy_libraries $(BUILD)

test: test-packages
	cmake --preset release -DDEEPINFER_ACCELERATOR=$(DEEPINFER_ACCELERATOR) > /dev/null
	cmake --build build/release -j $(JOBS)
	scripts/copy_libraries build/release
	scripts/check
	ctest --test-dir build/release --output-on-failure -j $(JOBS)

bundle: build
	scripts/make_bundle

check: lint-packages
	scripts/check --tidy

asan tsan: test-packages
	cmake --preset $@ > /dev/null
	cmake --build build/$@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -j $(JOBS)

fuzz: lint-packages test-packages
	scripts/fuzz

format: lint-packages
	find src cmake -name '*.cc' -o -name '*.h' | xargs clang-format-14 -i

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/deepinfer
	install -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/deepinfer

clean:
	rm -rf build/release build/debug build/asan build/tsan build/fuzz dist

packages:
	@scripts/install_packages build
test-packages:
	@scripts/install_packages test
lint-packages:
	@scripts/install_packages lint
