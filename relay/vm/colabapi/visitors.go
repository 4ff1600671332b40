package colabapi

import (
	"net"
	"sync"
)

// visitors is a listener with a bound on its open connections.
type visitors struct {
	net.Listener
	places chan struct{} // contains one element for each open connection
	done   chan struct{}
	close  func() error
}

func newVisitors(l net.Listener, most int) *visitors {
	v := &visitors{Listener: l, places: make(chan struct{}, most), done: make(chan struct{})}
	v.close = sync.OnceValue(func() error { close(v.done); return l.Close() })
	return v
}

// Accept waits until fewer than the most connections are open.
func (v *visitors) Accept() (net.Conn, error) {
	select {
	case v.places <- struct{}{}:
	case <-v.done:
		return nil, net.ErrClosed
	}
	leave := sync.OnceFunc(func() { <-v.places })
	c, err := v.Listener.Accept()
	if err != nil {
		leave()
		return nil, err
	}
	return visitor{c, leave}, nil
}

// Close ends waiting Accepts.
func (v *visitors) Close() error { return v.close() }

type visitor struct {
	net.Conn
	leave func()
}

func (v visitor) Close() error {
	defer v.leave()
	return v.Conn.Close()
}
