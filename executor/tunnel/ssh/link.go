package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	lost := tunnel.Start(l.client.Wait)
	served := tunnel.Start(func() error { return serve(l.forwarded) })
	announced := tunnel.Start(func() error { return announce(work) })
	l.work.Go(func() { l.keepAlive(work) })
	err := firstFailure(ctx, served, announced, lost)
	end()
	l.close()
	lost.Err()
	served.Err()
	announced.Err()
	return fmt.Errorf("the ssh connection is lost: %v", err)
}

// firstFailure returns why a link ends. After a graceful shutdown of the HTTP
// server the link stays, because responses may still be in progress. An announce
// that has succeeded ends nothing.
func firstFailure(ctx context.Context, served, announced, lost *tunnel.Task) error {
	servedDone, announcedDone := served.Done, announced.Done
	for {
		select {
		case <-servedDone:
			if !errors.Is(served.Err(), http.ErrServerClosed) {
				return served.Err()
			}
			servedDone, announcedDone = nil, nil
		case <-announcedDone:
			if announced.Err() != nil {
				return announced.Err()
			}
			announcedDone = nil
		case <-lost.Done:
			return lost.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the connection and everything it carried. It may be called again.
func (l *link) close() {
	if l.forwarded != nil {
		l.forwarded.Close()
	}
	l.client.Close()
	if l.forwarded != nil {
		l.forwarded.wait()
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
