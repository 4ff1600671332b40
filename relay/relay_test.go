package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/tools"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// home gives the test a user of its own.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	return dir
}

func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// relay runs the program to its end.
func relay(t *testing.T, getenv func(string) string, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code = run(ctx, args, getenv, streams{strings.NewReader(stdin), &o, &e})
	return code, o.String(), e.String()
}

// executor answers health, and the kernel to those who hold the secret.
func executor(t *testing.T, secret auth.Secret) string {
	t.Helper()
	verifier, signer := auth.NewVerifier(secret, contract.Instance{ID: "i", Start: "s"}, time.Now), auth.NewSigner(secret)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		health := contract.Health{Status: "ok", Version: "9.9", Protocol: contract.Protocol}
		if r.URL.Path == contract.PathHealth && r.Header.Get(auth.HeaderSignature) == "" {
			json.NewEncoder(w).Encode(health)
			return
		}
		if _, err := verifier.Verify(r); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"code":"unauthorized","message":"unauthorized"}}`)
			return
		}
		body, _ := json.Marshal(contract.Kernel{Status: contract.KernelIdle, KernelID: "k", Python: "3.12.1"})
		if r.URL.Path == contract.PathHealth {
			body, _ = json.Marshal(health)
		}
		w.Header().Set(contract.HeaderInstance, "i/s")
		if err := signer.SignResponse(w.Header(), r, http.StatusOK, body, time.Now()); err != nil {
			t.Error(err)
		}
		w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestPairRemembersAndSaysWhatAnswers(t *testing.T) {
	home(t)
	secret := auth.GenerateSecret()
	p := auth.Pairing{URL: executor(t, secret), Secret: secret}
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"pair", p.String()}},
		{"relay pair " + p.String() + "\n", []string{"pair"}},
		{p.String()[:40] + "\n" + p.String()[40:], []string{"pair", "-"}},
		{"", []string{"pair", "--name", "other", p.String()}},
	} {
		code, out, errs := relay(t, environ(), c.stdin, c.args...)
		if code != 0 || !strings.Contains(out, "connected: executor 9.9") || !strings.Contains(out, "3.12.1") {
			t.Errorf("%v: %d %q %q", c.args, code, out, errs)
		}
		if strings.Contains(out+errs, secret.Reveal()) {
			t.Error("the secret is printed")
		}
	}
	code, out, errs := relay(t, environ(), "", "status")
	if code != 0 || strings.Count(out, " connected") != 2 || strings.Count(out, "(default)") != 1 || strings.Contains(out+errs, secret.Reveal()) {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// Strangers can use up the executor's limit on unsigned requests, which pairing and
// status must not depend on.
func TestPairAndStatusNeedNoUnsignedRequest(t *testing.T) {
	home(t)
	secret := auth.GenerateSecret()
	target, err := url.Parse(executor(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(auth.HeaderSignature) == "" {
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"error":{"code":"rate_limited","message":"too many unsigned requests from this address"}}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	for _, args := range [][]string{{"pair", auth.Pairing{URL: s.URL, Secret: secret}.String()}, {"status"}} {
		code, out, errs := relay(t, environ(), "", args...)
		if code != 0 || !strings.Contains(out, "connected: executor 9.9") || strings.Contains(out, "not connected") {
			t.Errorf("%v: %d %q %q", args[0], code, out, errs)
		}
	}
}

func TestPairTellsWrongSecretsAndDeadAddresses(t *testing.T) {
	home(t)
	url := executor(t, auth.GenerateSecret())
	code, out, _ := relay(t, environ(), "", "pair", auth.Pairing{URL: url, Secret: auth.GenerateSecret()}.String())
	if code != 0 || !strings.Contains(out, "not connected") || !strings.Contains(out, "secret") || !strings.Contains(out, "next step") {
		t.Errorf("%d %q", code, out)
	}
	if code, _, errs := relay(t, environ(), "", "pair", "rubbish"); code != 1 || !strings.Contains(errs, "not a pairing string") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := relay(t, environ(), "", "status"); code != 1 || !strings.Contains(errs, "does not answer") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestVersion(t *testing.T) {
	if code, out, _ := relay(t, environ(), "", "version"); code != 0 || out != version+"\n" {
		t.Errorf("%d %q", code, out)
	}
	if code, _, errs := relay(t, environ(), "", "no-such"); code != 1 || !strings.Contains(errs, "no-such") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestAllWrongSettingsAreToldTogether(t *testing.T) {
	dir := home(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := load(settings{getenv: environ("RELAY_HOLD", "soon", "LOCAL_SAVE_DIR", file, "CHECKPOINT_DIR", filepath.Join(file, "x"), "COLAB_URL", "ftp://x")})
	var all strings.Builder
	for _, err := range c.problems {
		all.WriteString(err.Error() + "\n")
	}
	for _, want := range []string{"RELAY_HOLD", "LOCAL_SAVE_DIR", "CHECKPOINT_DIR", "COLAB_URL"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%s is not in %q", want, all.String())
		}
	}
}

func TestSettings(t *testing.T) {
	dir := home(t)
	secret := strings.Repeat("s", auth.MinSecretBytes)
	for _, c := range []struct {
		name  string
		env   []string
		fault bool
		hold  time.Duration
		save  string
	}{
		{name: "nothing set", hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "empty is unset", env: []string{"RELAY_HOLD", "", "LOCAL_SAVE_DIR", "", "COLAB_URL", ""}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "hold and home", env: []string{"RELAY_HOLD", "230s", "LOCAL_SAVE_DIR", "~/a/b"}, hold: 230 * time.Second, save: filepath.Join(dir, "a", "b")},
		{name: "hold too long", env: []string{"RELAY_HOLD", "231s"}, fault: true},
		{name: "hold too short", env: []string{"RELAY_HOLD", "0"}, fault: true},
		{name: "hold negative", env: []string{"RELAY_HOLD", "-5s"}, fault: true},
		{name: "keep too often", env: []string{"RELAY_KEEP_EVERY", "999ms"}, fault: true},
		{name: "keep too seldom", env: []string{"RELAY_KEEP_EVERY", "24h1s"}, fault: true},
		{name: "keep for more than all the time", env: []string{"RELAY_KEEP_PERCENT", "100.1"}, fault: true},
		{name: "keep less than nothing", env: []string{"RELAY_KEEP_MB", "-1"}, fault: true},
		{name: "keep more than a file may have", env: []string{"RELAY_KEEP_MB", "4097"}, fault: true},
		{name: "keep no number", env: []string{"RELAY_KEEP_TUNNEL_MB", "NaN"}, fault: true},
		{name: "hold without a unit", env: []string{"RELAY_HOLD", "45"}, fault: true},
		{name: "runtime", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", secret}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "URL without secret", env: []string{"COLAB_URL", "https://x.example"}, fault: true},
		{name: "short secret", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", "short"}, fault: true},
		{name: "no secret file", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET_FILE", filepath.Join(dir, "none")}, fault: true},
	} {
		got := load(settings{getenv: environ(c.env...)})
		if c.fault != (len(got.problems) > 0) {
			t.Errorf("%s: %v", c.name, got.problems)
		}
		if !c.fault && (got.hold != c.hold || got.saveDir != c.save) {
			t.Errorf("%s: %s %s", c.name, got.hold, got.saveDir)
		}
	}
}

func TestWhatIsKeptOfChunkedRunsIsSetByTheEnvironment(t *testing.T) {
	home(t)
	if got := load(settings{getenv: environ()}).keep; got != defaultKeep {
		t.Errorf("by default %+v", got)
	}
	got := load(settings{getenv: environ("RELAY_KEEP_EVERY", "1s", "RELAY_KEEP_PERCENT", "2.5", "RELAY_KEEP_MB", "0", "RELAY_KEEP_TUNNEL_MB", "1")})
	want := tools.Keep{Every: time.Second, Percent: 2.5, MaxBytes: 0, TunnelBytes: 1 << 20}
	if got.keep != want || len(got.problems) > 0 {
		t.Errorf("%+v %v", got.keep, got.problems)
	}
}

func TestAFlagGoesBeforeTheEnvironment(t *testing.T) {
	home(t)
	_, out, _ := relay(t, environ("RELAY_HOLD", "9s"), "", "status", "--hold", "7s")
	if !strings.Contains(out, "a call waits 7s") {
		t.Errorf("%q", out)
	}
}

// TestServeStartsWithWrongSettingsAndEndsWithStdin speaks MCP to the program.
func TestServeStartsWithWrongSettingsAndEndsWithStdin(t *testing.T) {
	home(t)
	for _, args := range [][]string{{}, {"serve"}} {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		var errs bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(t.Context(), args, environ("RELAY_HOLD", "soon"), streams{inR, outW, &errs})
			outW.Close()
		}()
		lines := bufio.NewScanner(outR)
		ask := func(line string) string {
			io.WriteString(inW, line+"\n")
			if !lines.Scan() {
				t.Fatal("stdout ended")
			}
			return lines.Text()
		}
		ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}`)
		if !strings.Contains(got, "not_configured") || !strings.Contains(got, "RELAY_HOLD") || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s", got)
		}
		inW.Close()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}

func TestANewPairingCountsAtOnce(t *testing.T) {
	home(t)
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntimes(environ(), store, nil)
	defer r.close()
	if _, err := r.resolve(""); err == nil {
		t.Fatal("resolved without a pairing")
	}
	first, second := auth.GenerateSecret(), auth.GenerateSecret()
	urls := []string{executor(t, first), executor(t, second)}
	for i, secret := range []auth.Secret{first, second} {
		if code, _, errs := relay(t, environ(), "", "pair", auth.Pairing{URL: urls[i], Secret: secret}.String()); code != 0 {
			t.Fatal(errs)
		}
		got, err := r.resolve("")
		if err != nil || got.URL != urls[i] || got.Name != "default" {
			t.Errorf("%+v %v", got, err)
		}
		if _, err := got.Client.Kernel(t.Context()); err != nil {
			t.Errorf("the client of pairing %d: %v", i, err)
		}
		if again, _ := r.resolve("default"); again.Client != got.Client {
			t.Error("a client is made anew for each call")
		}
	}
}
