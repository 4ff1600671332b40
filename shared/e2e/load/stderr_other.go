//go:build !linux

package main

func blockStderr(int) error { return nil }
