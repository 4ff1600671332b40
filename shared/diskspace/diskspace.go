// Package diskspace tells how full a disk is, on each system that the relay runs on.
package diskspace

// Space is the size of a file system in bytes, and how many of them the user can still write.
type Space struct{ Free, Size int64 }
