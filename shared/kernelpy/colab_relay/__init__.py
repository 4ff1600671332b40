"""The Python that runs in the kernel. The Go package beside it sends it there; see kept.py."""
