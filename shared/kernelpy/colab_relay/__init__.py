"""The Python that runs in the kernel. Go package kernelpy sends it there; see package_loader.py."""
