package tools

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// A user of an extension has a field for the pairing string, and no command.
func TestInAnExtensionHintsNameItsFieldAndNoCommandForPairing(t *testing.T) {
	store := pairing.Open(t.TempDir())
	none := func(string) string { return "" }
	_, notPaired := pairing.Resolve("", none, store)
	_, unknown := pairing.Resolve("lab", none, store)
	_, damaged := pairing.Resolve("", func(name string) string { return map[string]string{"COLAB_PAIRING": "colab-relay:x"}[name] }, store)
	const field = `"Pairing $1 string" in the extension's settings`
	for name, p := range map[string]*Problem{
		"not paired":   resolveProblem(notPaired),
		"unknown name": resolveProblem(unknown),
		"damaged":      badSettings([]error{damaged}),
		"unauthorized": problemOf(&contract.Error{Code: contract.CodeUnauthorized}),
		"wrong secret": answered(t, 401, "", `{"error":{"code":"unauthorized","message":"m"}}`),
		"rate limited": answered(t, 429, "", `{"error":{"code":"rate_limited"}}`),
		"offline":      answered(t, 404, "ERR_NGROK_3200", ""),
		"a web page":   answered(t, 200, "", "[]"),
	} {
		t.Run(name, func(t *testing.T) {
			got := inExtension("Pairing $1 string", p.copy())
			text := got.Message + "\n" + got.Hint
			for _, command := range []string{"`colab-relay", "COLAB_PAIRING", "env block"} {
				if strings.Contains(text, command) {
					t.Errorf("%q is in\n%s", command, text)
				}
			}
			if !strings.Contains(text, field) {
				t.Errorf("the field is not in\n%s", text)
			}
			if same := inExtension("", p.copy()); *same != *p {
				t.Errorf("without a field, it became %+v", same)
			}
		})
	}
}

// answered returns the problem of a call that a server at the executor's address answers so.
func answered(t *testing.T, status int, ngrok, body string) *Problem {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if ngrok != "" {
			w.Header().Set("Ngrok-Error-Code", ngrok)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{BaseURL: server.URL, Secret: auth.GenerateSecret()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Health(t.Context()); err == nil && status == 200 || status == 401 { // Health needs no secret, and is not tried again
		_, err = c.Kernel(t.Context())
	}
	if err == nil {
		t.Fatal("the call succeeded")
	}
	return problemOf(err)
}
