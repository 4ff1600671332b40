// Package freeport keeps ports for servers that a test starts later or starts again. It is
// for tests only. Start reading at Address.
package freeport

import (
	"net"
	"net/netip"
	"os"
)

// Address returns an address on loopback at which nothing listens. This process keeps the port
// until it ends: whoever is told the address can listen there, also again after a kill, and the
// system gives the port to nobody else, neither for an outgoing connection nor for port 0.
func Address() (string, error) {
	port, err := keep()
	if err != nil {
		return "", os.NewSyscallError("bind", err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(loopback), port).String(), nil
}

var loopback = [4]byte(net.IPv4(127, 0, 0, 1).To4())
