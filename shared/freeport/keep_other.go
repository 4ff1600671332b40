//go:build !linux

package freeport

import "net"

// keep only looks for a port that is free now: other systems let no second socket bind a port
// while one is bound to it.
func keep() (port uint16, err error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback[:]})
	if err != nil {
		return 0, err
	}
	return uint16(l.Addr().(*net.TCPAddr).Port), l.Close()
}
