//go:build !linux

package main

// keepPrivate does nothing: only on Linux does it hide this process's memory from other
// processes of the same user.
func keepPrivate() error { return nil }
