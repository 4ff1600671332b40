package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

func TestPrintsAPairingThatItsAnswersAreSealedWith(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-case", "none"}, in, io.Discard) }()
	line := make([]byte, 4096)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	p, err := auth.ParsePairing(string(line[:n]))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, p.URL+contract.PathKernel, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := linetest.Seal(t, p.Secret, req, nil, time.Now())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := linetest.Open(x, res, res.Body, false); err != nil {
		t.Errorf("the answer: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
