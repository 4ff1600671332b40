package client

import (
	"errors"
	"net/http"
	"testing"

	"colabrelay/shared/auth"
)

type routeless struct{ err error }

func (r routeless) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

func TestATransportThatKnowsWhyNoExecutorIsReachedSaysIt(t *testing.T) {
	cause := errors.New("gone")
	c, err := New(Config{BaseURL: "https://8000-vm.example", Secret: auth.GenerateSecret(), Transport: routeless{&RouteError{Message: "VM \"a\" does not exist any more", Hint: "Start another one.", Err: cause}}})
	if err != nil {
		t.Fatal(err)
	}
	c.timeouts.reach = 1 // nanosecond: one attempt
	_, err = c.SignedHealth(WithReachLimit(t.Context()))
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != KindTunnelOffline || e.Hint != "Start another one." || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
