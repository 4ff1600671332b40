// Package smalldisk gives a test a disk of a few MiB of its own, which it can fill. For
// tests only. It knows nothing of what runs on the disk.
package smalldisk
