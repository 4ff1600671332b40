//go:build !linux && !darwin && !windows

package diskspace

// Of is unknown on this system.
func Of(string) (Space, bool) { return Space{}, false }
