// Package freeport finds ports for servers that a test starts later or starts again. It is
// for tests only. Start reading at Address.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Systems take the ports of outgoing connections and of port 0 from above these bounds.
const (
	first = 12000
	last  = 31999
)

// Address returns a loopback address on which nothing listens. No outgoing connection of
// another process takes its port meanwhile, unlike a port that the system has chosen.
func Address() (string, error) {
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", errors.New("no free port found in 1000 tries")
}
