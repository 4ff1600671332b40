// Package chunked runs a loop on the VM batch by batch and keeps on the laptop how
// far it came.
package chunked
