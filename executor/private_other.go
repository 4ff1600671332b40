//go:build !linux

package main

// keepPrivate does nothing: only Linux is asked to keep other processes of the same user
// from reading this one's memory.
func keepPrivate() error { return nil }
