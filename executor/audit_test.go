package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// audited starts an executor with an audit log.
func audited(t *testing.T, path string, options ...option) *program {
	t.Helper()
	p := start(t, append(options, withEnv(envSecret+"="+longSecret), withArgs("--audit", path))...)
	p.ready()
	return p
}

// entries reads an audit log.
func entries(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	for line := range bytes.Lines(raw) {
		var entry map[string]any
		must(t, json.Unmarshal(line, &entry))
		all = append(all, entry)
	}
	return all
}

// one returns the only entry that has all these values.
func one(t *testing.T, all []map[string]any, want map[string]any) (found map[string]any) {
	t.Helper()
	n := 0
	for _, e := range all {
		matches := true
		for key, value := range want {
			matches = matches && e[key] == value
		}
		if matches {
			n, found = n+1, e
		}
	}
	if n != 1 {
		t.Fatalf("%d of %d entries have %v", n, len(all), want)
	}
	return found
}

func TestTheAuditLogTellsWhoRanWhatAndHowItEndedAcrossAKill(t *testing.T) {
	tier.Long(t)
	path := filepath.Join(t.TempDir(), "state", "audit.log")
	inState := withArgs("--state-dir", filepath.Dir(path))
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	p := audited(t, path, inState)
	const code = "pin = input('PIN? ')\nprint('OUTPUT' + '-MARKER')\n1/0"
	sum := sha256.Sum256([]byte(code))
	id := p.submit("asks", code, 20).ExecutionID
	call[contract.Execution](p, "POST", contract.PathExecutions+"/"+id+"/input", contract.Input{Text: "INPUT-MARKER"})
	p.submit("asks", code, 20) // a repeated request is no second execution
	p.submit("runs", "import time\nwhile True: time.sleep(0.01)", 0)
	waiting := p.submit("waits", "1", 0).ExecutionID
	p.signal(syscall.SIGKILL)
	p.exit()
	must(t, os.Remove(p.readyFile()))

	again := audited(t, path, inState, in(p.dir))
	again.signal(syscall.SIGTERM)
	again.exit()
	all := entries(t, path)
	submitted := one(t, all, map[string]any{"event": "execution_submitted", "submit_id": "asks"})
	ended := one(t, all, map[string]any{"event": "execution_ended", "submit_id": "asks"})
	for _, e := range []map[string]any{submitted, ended} {
		if e["code_sha256"] != hex.EncodeToString(sum[:]) || e["key_id"] != p.secret.KeyID() {
			t.Errorf("%v", e)
		}
	}
	if submitted["address"] != "127.0.0.1" || submitted["caller"] == nil {
		t.Errorf("%v", submitted)
	}
	if ended["outcome"] != "failed" || ended["execution_id"] != id || ended["duration_ms"] == nil {
		t.Errorf("%v", ended)
	}
	one(t, all, map[string]any{"event": "request", "request_id": submitted["request_id"], "execution_id": id, "path": contract.PathExecutions, "status": 200.})
	one(t, all, map[string]any{"event": "request", "path": contract.PathExecutions + "/" + id + "/input", "status": 200.})
	one(t, all, map[string]any{"event": "execution_ended", "submit_id": "runs", "outcome": "lost"})
	one(t, all, map[string]any{"event": "execution_ended", "execution_id": waiting, "outcome": "cancelled"})
	one(t, all, map[string]any{"event": "executor_stopped"})
	if raw, _ := os.ReadFile(path); strings.Contains(string(raw), "-MARKER") || strings.Contains(string(raw), "PIN") || strings.Contains(string(raw), longSecret) {
		t.Error("the log holds code, output, input or the secret")
	}
}

func TestTheAuditLogLiesWhereNoRelayCanReplaceIt(t *testing.T) {
	work, extra, outside := t.TempDir(), t.TempDir(), filepath.Join("/", "var", "log")
	link := filepath.Join(work, "link")
	must(t, os.Symlink(extra, link))
	for path, refused := range map[string]bool{
		filepath.Join(work, "audit.log"):                 true,
		filepath.Join(work, "a", "audit.log"):            true,
		filepath.Join(extra, "audit.log"):                true,
		filepath.Join(link, "audit.log"):                 true,
		filepath.Join(os.TempDir(), "audit.log"):         true,
		filepath.Join(work, ".colab-relay", "audit.log"): false,
		filepath.Join(outside, "audit.log"):              false,
	} {
		c, err := parseConfig([]string{"--workdir", work, "--allow-path", extra, "--audit", path}, env(), io.Discard)
		if got := err != nil && strings.Contains(err.Error(), "relays can read and replace files there"); got != refused {
			t.Errorf("%s: %v", path, err)
		}
		if c.audit.path != path {
			t.Errorf("%s is understood as %s", path, c.audit.path)
		}
	}
}
