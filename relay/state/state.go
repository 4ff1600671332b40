// Package state keeps a kernel's variables on the laptop, in versions, and brings
// them back into a kernel.
package state
