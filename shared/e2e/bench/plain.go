package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// The bytes of a sealed POST of 1+1 and of its answer.
const (
	plainUp   = 300
	plainDown = 790
)

// servePlain is the other program of the plain exchange: it reads a body and answers with one.
// It ends with stdin.
func servePlain(stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, plainDown))
	}))
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// plainExchange is a POST over net/http to another program on a connection that is open: no
// call through HTTP can be faster than it and the kernel together.
func (b *bench) plainExchange(ctx context.Context) (way, error) {
	self, err := os.Executable()
	if err != nil {
		return way{}, err
	}
	cmd := exec.Command(self, plainCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		return way{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return way{}, err
	}
	if err := cmd.Start(); err != nil {
		return way{}, err
	}
	b.atEnd(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return way{}, err
	}
	url := "http://" + strings.TrimSpace(address)
	return way{name: "plain HTTP", do: func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(make([]byte, plainUp)))
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}}, nil
}
