package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel"
)

// errNoForward is the server's refusal of a remote forward. It gives no reason.
var errNoForward = errors.New("the server does not forward the port")

// link is one login. It is not used again after its connection was lost.
type link struct {
	client    *ssh.Client
	forwarded *forwarded    // set by forward
	interval  time.Duration // between keepalives
	work      sync.WaitGroup
}

// forward asks the server to listen and returns the port. Only connections that
// are forwarded from there are ever accepted.
func (l *link) forward(bind string, port uint32) (uint32, error) {
	l.forwarded = newForwarded(l.client.HandleChannelOpen("forwarded-tcpip"))
	answer := struct{ Port uint32 }{port}
	ok, reply, err := l.client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{bind, port}))
	if err != nil {
		return 0, fmt.Errorf("request a forwarded port: %v", err)
	}
	if !ok {
		return 0, errNoForward
	}
	if port == 0 {
		if err := ssh.Unmarshal(reply, &answer); err != nil {
			return 0, fmt.Errorf("read the forwarded port: %v", err)
		}
	}
	return answer.Port, nil
}

// serve serves the forwarded connections until ctx has ended, the connection is
// lost, or announce or serve has failed. It then closes the link.
func (l *link) serve(ctx context.Context, serve func(net.Listener) error, announce func(context.Context) error) error {
	work, end := context.WithCancel(ctx)
	l.work.Go(func() { l.keepAlive(work) })
	lost := tunnel.Start(l.client.Wait)
	announced := tunnel.Start(func() error {
		err := announce(work)
		if err != nil {
			l.client.Close()
		}
		return err
	})
	served := tunnel.Serve(func() error { return serve(l.forwarded) }, lost.Done, ctx.Done())
	end()
	l.close()
	served.Err()
	return fmt.Errorf("the ssh connection is lost: %v", cmp.Or(announced.Err(), lost.Err()))
}

// close ends the connection and everything it carried. It may be called again.
func (l *link) close() {
	if l.forwarded != nil {
		l.forwarded.Close()
	}
	l.client.Close()
	if l.forwarded != nil {
		l.forwarded.work.Wait() // for its connections
	}
	l.work.Wait()
}

// keepAlive closes a connection whose server no longer responds: a NAT that
// dropped it, or a server that has disappeared, sends nothing at all.
func (l *link) keepAlive(ctx context.Context) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	var response chan struct{} // of the request that waits for one
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-response:
			response, missed = nil, 0
			continue
		case <-tick.C:
		}
		if response == nil {
			response = l.ping()
			continue
		}
		if missed++; missed >= maxMissed {
			l.client.Close()
			return
		}
	}
}

// ping sends a keepalive. The channel is closed when the server responds, also
// with a refusal.
func (l *link) ping() chan struct{} {
	response := make(chan struct{})
	l.work.Go(func() {
		if _, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil); err == nil {
			close(response)
		}
	})
	return response
}
