//go:build !linux

package main

// keepPrivate does nothing: only on Linux does it hide this process's memory from other
// processes of the same user.
func keepPrivate() error { return nil }

// keepDescriptors does nothing: only on Linux can a program list its open files everywhere.
func keepDescriptors() error { return nil }
