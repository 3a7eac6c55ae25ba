"""Training of the mini model: data, the PyTorch model, the training loop, export and evaluation."""
