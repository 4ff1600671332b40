package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// patient is an executor that a doctor may look at: what differs from a sound one is
// what a test sets.
type patient struct {
	secret   auth.Secret
	clock    time.Duration // ahead of this computer's
	protocol int
	health   http.HandlerFunc
	kernel   contract.Kernel
}

func (p patient) start(t *testing.T) string {
	t.Helper()
	now := func() time.Time { return time.Now().Add(p.clock) }
	verifier, signer := auth.NewVerifier(p.secret, contract.Instance{ID: "vm-1", Start: "s"}, now), auth.NewSigner(p.secret)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isHealth, signed := r.URL.Path == contract.PathHealth, r.Header.Get(auth.HeaderSignature) != ""
		if isHealth && !signed && p.health != nil {
			p.health(w, r)
			return
		}
		health := contract.Health{Status: "ok", Version: "9.9", Protocol: p.protocol, UptimeMinutes: 3}
		if isHealth && !signed {
			json.NewEncoder(w).Encode(health)
			return
		}
		status, answer := http.StatusOK, any(p.kernel)
		if isHealth {
			answer = health
		}
		switch _, err := verifier.Verify(r); {
		case err != nil && p.clock != 0 && errors.Is(err, auth.ErrClockSkew):
			status, answer = http.StatusUnauthorized, contract.ErrorBody{Error: contract.Error{Code: contract.CodeClockSkew, Message: "clock", ServerTime: now().Unix()}}
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"code":"unauthorized","message":"unauthorized"}}`)
			return
		}
		body, _ := json.Marshal(answer)
		w.Header().Set(contract.HeaderInstance, "vm-1/s")
		if err := signer.SignResponse(w.Header(), r, status, body, now()); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func sound() patient {
	return patient{secret: auth.GenerateSecret(), protocol: contract.Protocol, kernel: contract.Kernel{Status: contract.KernelIdle, KernelID: "k", Python: "3.12.1"}}
}

func page(status int, ngrok string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if ngrok != "" {
			w.Header().Set("Ngrok-Error-Code", ngrok)
		}
		w.WriteHeader(status)
	}
}

func TestTheDoctorNamesEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*patient)
		code   int
		want   []string // lines, by pattern
	}{
		"sound": {func(*patient) {}, 0, []string{
			`ok .*env +http://127`, `ok .*network: .* port \d+ answers`, `ok .*executor: release 9.9, protocol 2, up 3 min`,
			`ok .*secret`, `ok .*clock`, `ok .*instance: vm-1, not used`, `ok .*kernel: idle, Python 3.12.1`,
		}},
		"executor gone": {func(p *patient) { p.health = page(404, "ERR_NGROK_3200") }, 1, []string{
			`fail .*ERR_NGROK_3200: no executor is online`, `next step: the VM has ended .* run the executor's cell`,
		}},
		"quota":          {func(p *patient) { p.health = page(403, "ERR_NGROK_727") }, 1, []string{`fail .*tunnel_quota.*requests for this month`, `next step: .*usage page`}},
		"something else": {func(p *patient) { p.health = page(200, "") }, 1, []string{`fail .*not_executor`, `next step: check COLAB_URL`}},
		"health used up": {func(p *patient) { p.health = page(429, "") }, 0, []string{`warn .*too many requests`, `ok .*kernel: idle`}},
		"newer protocol": {func(p *patient) { p.protocol = contract.Protocol + 1 }, 1, []string{`fail .*wrong_protocol: the executor speaks protocol 3 and this relay protocol 2: the relay on this computer is the older one`, `next step: update the relay on this computer`}},
		"older protocol": {func(p *patient) { p.protocol = 0 }, 1, []string{`fail .*wrong_protocol`, `next step: update the executor: run the cell of this relay's release`}},
		"another secret": {func(p *patient) { p.secret = auth.GenerateSecret() }, 1, []string{`ok .*executor`, `fail .*wrong_secret`, `next step: .*relay pair`}},
		"clock":          {func(p *patient) { p.clock = time.Hour }, 0, []string{`warn .*clock: (59m59|1h0m0)s from the executor's`, `next step: set this computer's clock`, `ok .*kernel`}},
		"kernel dead": {func(p *patient) {
			p.kernel = contract.Kernel{Status: contract.KernelDead, KernelID: "k", Reason: "out of memory"}
		}, 1, []string{
			`fail .*kernel: dead: out of memory`, `next step: .*restart_kernel`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			p := sound()
			ours := p.secret
			c.change(&p)
			code, out, errs := relay(t, environ("COLAB_URL", p.start(t), "COLAB_SECRET", ours.Reveal()), "", "doctor")
			if code != c.code || strings.Contains(out+errs, ours.Reveal()) {
				t.Errorf("%d %q", code, errs)
			}
			wantLines(t, out, c.want)
		})
	}
}

// wantLines looks for one line after the other.
func wantLines(t *testing.T, out string, patterns []string) {
	t.Helper()
	rest := out
	for _, pattern := range patterns {
		at := regexp.MustCompile(`(?m)^` + strings.ReplaceAll(pattern, "next step", ` +next step`) + `.*$`).FindStringIndex(rest)
		if at == nil {
			t.Errorf("no line like %q in order in\n%s", pattern, out)
			return
		}
		rest = rest[at[1]:]
	}
}

func TestTheDoctorSaysWhenTheVMIsANewOne(t *testing.T) {
	home(t)
	p := sound()
	getenv := environ("COLAB_URL", p.start(t), "COLAB_SECRET", p.secret.Reveal())
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	key := pairing.Runtime{Name: pairing.EnvName, Secret: p.secret}.Key()
	for seen, want := range map[pairing.LastSeen][]string{
		{InstanceID: "vm-1", KernelID: "k"}:   {`ok .*instance: vm-1, the one`, `ok .*kernel: idle`},
		{InstanceID: "vm-1", KernelID: "old"}: {`ok .*instance: vm-1, the one`, `warn .*kernel: idle.*variables are not here`},
		{InstanceID: "vm-0", KernelID: "old"}: {`warn .*instance: vm-1, another VM`, `warn .*kernel`},
	} {
		if err := store.SaveLastSeen(key, seen); err != nil {
			t.Fatal(err)
		}
		code, out, _ := relay(t, getenv, "", "doctor")
		if code != 0 {
			t.Errorf("%+v: %d", seen, code)
		}
		wantLines(t, out, want)
		if store.LastSeen(key) != seen {
			t.Error("the doctor changed what the next relay will say")
		}
	}
}

func TestTheDoctorLooksAtThisComputer(t *testing.T) {
	dir := home(t)
	code, out, errs := relay(t, environ(), "", "doctor")
	if code != 1 || !strings.Contains(errs, "1 of these checks failed") {
		t.Errorf("nothing paired: %d %q", code, errs)
	}
	wantLines(t, out, []string{`ok .*relay`, `ok .*settings .*45s`, `ok .*downloads .*colab_results`, `ok .*checkpoints`, `warn .*host`, `next step: .relay install`, `fail .*pairings .*not paired with a runtime`})

	p := sound()
	for name, url := range map[string]string{"default": p.start(t), "an-older-one": "http://127.0.0.1:1"} {
		relay(t, environ(), "", "pair", "--name", name, auth.Pairing{URL: url, Secret: p.secret}.String())
	}
	relay(t, environ(), "", "install", "cursor")
	write(t, filepath.Join(dir, ".gemini", "settings.json"), []byte(`{"mcpServers": {"colab-relay": {"command": "/gone/relay"}}}`))
	if err := os.Chmod(filepath.Join(dir, "config", "colab-relay", "runtimes.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, _ = relay(t, environ("RELAY_HOLD", "soon"), "", "doctor")
	wantLines(t, out, []string{
		`fail .*settings .*RELAY_HOLD`, `ok .*Cursor starts this relay`, `fail .*Gemini CLI is to start /gone/relay`, `next step: .relay install gemini`,
		`warn .*pairings .*others on this computer can read`, `warn .*an-older-one +unreachable: nothing listens`, `ok .*default .*kernel: idle`,
	})
	if code != 1 {
		t.Errorf("%d", code)
	}
	width := strings.Index(out, "dev,")
	for line := range strings.Lines(out) {
		if len(line) < width || line[width-1] != ' ' || line[width] == ' ' {
			t.Errorf("not aligned: %q", line)
		}
	}
}

// What a VM says is shown, never obeyed by the terminal.
func TestTheDoctorPrintsNoEscapes(t *testing.T) {
	var out bytes.Buffer
	r := &report{w: &out, width: 5}
	r.say(ok, "x", "kernel: %s", "\x1b[2Jdead")
	r.step("%s", "\x1b]0;t\a")
	if strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("%q", out.String())
	}
}
