package client

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// proxied is a client whose connections to e go through a network that can be cut.
// failures receives the error of each failed attempt.
func proxied(t *testing.T, e *executor) (c *Client, network *toxiproxy.Proxy, failures chan string) {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	network = toxiproxy.NewProxy(api, "network", "127.0.0.1:0", strings.TrimPrefix(e.URL, "http://"))
	if err := network.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Stop)
	failures = make(chan string, 100)
	c = newClient(t, Config{BaseURL: "http://" + network.Listen, Secret: testSecret(t, testKey), OnAttempt: func(err error) {
		if err != nil {
			failures <- err.Error()
		}
	}})
	return c, network, failures
}

func cut(t *testing.T, network *toxiproxy.Proxy, toxic string) {
	t.Helper()
	if _, err := network.Toxics.AddToxicJson(bytes.NewReader([]byte(toxic))); err != nil {
		t.Fatal(err)
	}
}

func TestCutsInTheMiddle(t *testing.T) {
	tier.Long(t)
	for name, toxic := range map[string]string{
		"of a request": `{"name":"cut","type":"limit_data","stream":"upstream","attributes":{"bytes":300}}`,
		"of an answer": `{"name":"cut","type":"limit_data","stream":"downstream","attributes":{"bytes":300}}`,
		"with a reset": `{"name":"cut","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`,
		"silently":     `{"name":"cut","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			e, runs := newRunningExecutor(t)
			c, network, failures := proxied(t, e)
			c.timeouts = timeouts{answer: 300 * time.Millisecond, stall: 300 * time.Millisecond}
			if _, err := c.Kernel(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Close() // the toxic counts from the first byte of a connection
			cut(t, network, toxic)

			type result struct {
				execution contract.Execution
				err       error
			}
			done := make(chan result, 1)
			go func() {
				execution, err := c.Submit(t.Context(), contract.Submit{RequestID: "once", Code: "1"})
				done <- result{execution, err}
			}()
			<-failures
			if err := network.Toxics.RemoveToxic(t.Context(), "cut"); err != nil {
				t.Fatal(err)
			}
			got := <-done
			if got.err != nil || got.execution.RequestID != "once" {
				t.Fatalf("%+v, %v", got.execution, got.err)
			}
			if len(runs.ran) != 1 || runs.ran["once"] != 1 {
				t.Errorf("ran %v", runs.ran)
			}
		})
	}
}

func TestNetworkThatIsGoneForAWhile(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c, network, failures := proxied(t, e)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	network.Stop()
	done := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), contract.Submit{RequestID: "once", Code: "1"})
		done <- err
	}()
	<-failures
	<-failures
	if err := network.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if runs.ran["once"] != 1 || len(e.submits(t)) != 1 {
		t.Errorf("ran %v after %d submits", runs.ran, len(e.submits(t)))
	}
}
