package freeport

import "syscall"

// keep binds a socket that never listens. Linux then lets only such sockets listen on the port
// that have SO_REUSEADDR, too, and name the port, as servers do (socket(7)).
func keep() (port uint16, err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: loopback}); err != nil {
		return 0, err
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return uint16(bound.(*syscall.SockaddrInet4).Port), nil
}
