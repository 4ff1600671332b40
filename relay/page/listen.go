package page

import (
	"fmt"
	"net"
	"strconv"
)

// maxPorts bounds the free ports that are tried until one is free on both addresses.
const maxPorts = 20

// listen opens a port on 127.0.0.1, and the same one on [::1] where there is IPv6. A browser
// takes either address for localhost, so another program on one of them would get the token.
func listen(port int) ([]net.Listener, error) {
	for range maxPorts {
		listeners, err := listenOnce(port)
		if err == nil {
			return listeners, nil
		}
		if port != 0 {
			return nil, fmt.Errorf("listening for Colab's page: %w: another program may use port %d: choose another one with --page-port", err, port)
		}
	}
	return nil, fmt.Errorf("listening for Colab's page: %d free ports of 127.0.0.1 are taken on [::1]: choose one with --page-port", maxPorts)
}

func listenOnce(port int) ([]net.Listener, error) {
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	if !hasIPv6() {
		return []net.Listener{four}, nil
	}
	six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(portOf(four))))
	if err != nil {
		_ = four.Close()
		return nil, err
	}
	return []net.Listener{four, six}, nil
}

// hasIPv6 reports whether this computer has the address [::1].
func hasIPv6() bool {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
