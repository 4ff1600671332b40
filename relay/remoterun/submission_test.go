package remoterun

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// stopped is the network to an executor that was stopped.
type stopped struct{}

func (stopped) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func TestAnUnansweredSubmitSaysWhetherTheCodeWasRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the client tries for a while
		c, err := client.New(client.Config{BaseURL: "http://stopped.test", Secret: auth.GenerateSecret(), Transport: stopped{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Submit(client.WithReachLimit(t.Context()), contract.Submit{Code: "1"})
		if err := unsubmitted(err); err == nil || !strings.HasPrefix(err.Error(), "the code was not run: ") {
			t.Errorf("a stopped executor: %v", err)
		}
	})
	refusal := &contract.Error{Code: contract.CodeQueueFull, Message: "full"}
	for err, want := range map[error]bool{
		&client.Error{Kind: client.KindTimeout}:                          true,
		fmt.Errorf("x: %w", &client.Error{Kind: client.KindTunnelError}): true,
		&client.Error{Kind: client.KindWrongSecret}:                      false,
		refusal: false,
	} {
		got := unsubmitted(err)
		if unknown := strings.Contains(got.Error(), "unknown whether") && strings.Contains(got.Error(), "colab-relay ps"); unknown != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
