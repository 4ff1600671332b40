package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// errNoForward is the server's no to a remote forward; it gives no reason.
var errNoForward = errors.New("the server does not forward the port")

// sshLink is one login. It is never used again after its connection was lost.
type sshLink struct {
	client  *ssh.Client
	visits  *visits
	alive   time.Duration
	keepers sync.WaitGroup
	end     context.CancelFunc
	ctx     context.Context // of the link's own goroutines
}

// connect dials, checks the server's key and logs in. What another try would
// not change comes back as *Refused.
func (s *sshTunnel) connect(ctx context.Context) (*sshLink, error) {
	config, done, problem, err := s.clientConfig()
	if err != nil {
		return nil, err
	}
	defer done()
	dialer := net.Dialer{Timeout: sshDial}
	conn, err := dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(sshLogin)) // a TCP connection has deadlines
	c, chans, requests, err := ssh.NewClientConn(conn, s.address, config)
	if !stop() && err == nil {
		c.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, s.notLoggedIn(err, problem())
	}
	_ = conn.SetDeadline(time.Time{})
	link := &sshLink{client: ssh.NewClient(c, chans, requests), alive: s.alive}
	link.ctx, link.end = context.WithCancel(context.WithoutCancel(ctx))
	return link, nil
}

// loginProblem is what was found out during a login, besides its error.
type loginProblem struct {
	host error // the server's key was not accepted
	keys int   // that could be offered
}

func (s *sshTunnel) clientConfig() (*ssh.ClientConfig, func(), func() loginProblem, error) {
	check, err := s.hosts.callback()
	if err != nil {
		return nil, nil, nil, err
	}
	signers, done, err := s.keys.open()
	if err != nil {
		return nil, nil, nil, err
	}
	problem := loginProblem{keys: len(signers)}
	var accepted []byte
	config := &ssh.ClientConfig{
		User: s.user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyCallback: func(address string, remote net.Addr, key ssh.PublicKey) error {
			if bytes.Equal(key.Marshal(), accepted) {
				return nil // asked again at each change of session keys
			}
			problem.host = s.hosts.judge(check(address, remote, key), address, key)
			if problem.host == nil {
				accepted = key.Marshal()
			}
			return problem.host
		},
		HostKeyAlgorithms: s.hosts.algorithms(check, s.address),
	}
	return config, done, func() loginProblem { return problem }, nil
}

// notLoggedIn says whether a failed login is worth another try. The library has
// no type for "no key was accepted", only this text.
func (s *sshTunnel) notLoggedIn(err error, problem loginProblem) error {
	if problem.host != nil {
		return problem.host
	}
	if errors.As(err, new(*ssh.AlgorithmNegotiationError)) {
		return &Refused{By: s.name(), Explanation: fmt.Sprintf(
			"nothing to agree on (%v); if that is about host keys, %q knows it by a kind of key that it no longer has", err, s.hosts.file)}
	}
	if !strings.Contains(err.Error(), "unable to authenticate") && !strings.Contains(err.Error(), "authentication failures") {
		return err
	}
	explanation := fmt.Sprintf("it let none of %d keys in as %q: put the public key into that user's authorized_keys there", problem.keys, s.user)
	if problem.keys == 0 {
		explanation = s.keys.none()
	}
	return &Refused{By: s.name(), Explanation: explanation}
}

// forward asks the server to listen, and tells the port it took. Only the
// connections that are forwarded from there are ever accepted.
func (l *sshLink) forward(bind string, port uint32) (uint32, error) {
	l.visits = newVisits(l.client.HandleChannelOpen("forwarded-tcpip"))
	answer := struct{ Port uint32 }{port}
	ok, reply, err := l.client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{bind, port}))
	if err != nil {
		return 0, fmt.Errorf("ask for a forwarded port: %v", err)
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

// run serves until ctx has ended or the connection is lost.
func (l *sshLink) run(ctx context.Context, serve func(net.Listener) error, announce func(context.Context) error) error {
	lost := make(chan error, 1)
	go func() { lost <- l.client.Wait() }()
	l.keepers.Go(l.keepAlive)
	announced := make(chan error, 1)
	l.keepers.Go(func() { announced <- announce(l.ctx) })
	served := make(chan error, 1)
	go func() { served <- serve(l.visits) }()

	var err error
	for waiting := true; waiting; {
		select {
		case err = <-served:
			served <- err
			waiting = false
		case err = <-announced:
			announced = nil
			waiting = err == nil
		case err = <-lost:
			lost <- err
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		select {
		case <-ctx.Done():
		case err = <-lost:
			lost <- err
		}
	}
	l.close()
	<-lost
	<-served
	return fmt.Errorf("ssh connection is lost: %v", err)
}

// close ends the connection and all that it carried. It may be called again.
func (l *sshLink) close() {
	l.end()
	if l.visits != nil {
		l.visits.Close()
	}
	l.client.Close()
	if l.visits != nil {
		l.visits.wait()
	}
	l.keepers.Wait()
}

// keepAlive ends a connection whose server no longer answers: a NAT that forgot
// it, or a server that has gone, sends nothing at all.
func (l *sshLink) keepAlive() {
	tick := time.NewTicker(l.alive)
	defer tick.Stop()
	var answers chan struct{}
	missed := 0
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-answers:
			answers, missed = nil, 0
			continue
		case <-tick.C:
		}
		if answers != nil {
			if missed++; missed >= sshMissed {
				l.client.Close()
				return
			}
			continue
		}
		answered := make(chan struct{})
		answers = answered
		l.keepers.Go(func() {
			if _, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil); err == nil {
				close(answered) // a no is an answer as well
			}
		})
	}
}
