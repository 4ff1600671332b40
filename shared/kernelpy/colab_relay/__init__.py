"""The Python that runs in the kernel. It is embedded by the Go package beside it."""
