package main

import (
	"net"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
)

func TestDoctorTellsWhatIsThere(t *testing.T) {
	var out, errs strings.Builder
	code := run(t.Context(), []string{"doctor", "--python", "/bin/false"}, env("HOME", t.TempDir()), nil, &out, &errs)
	if code != 1 || !strings.Contains(out.String(), "fail  python") {
		t.Errorf("exit code is %d:\n%s%s", code, &out, &errs)
	}
	for _, what := range []string{"platform", "config", "memory", "disk", "tunnel"} {
		if !strings.Contains(out.String(), what) {
			t.Errorf("doctor is silent on %s:\n%s", what, &out)
		}
	}
}

func TestDoctorTellsOfTheChosenTunnel(t *testing.T) {
	t.Setenv("PATH", withoutCloudflared(t))
	for name, tc := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"none":        {want: "warn  tunnel"},
		"cloudflared": {args: []string{"--tunnel", "cloudflared"}, want: "fail  tunnel    no tunnel through cloudflared: the program is not on PATH; install it"},
		"ssh":         {args: []string{"--tunnel", "ssh", "--ssh", "me@127.0.0.1:1"}, want: `fail  tunnel    ssh server "127.0.0.1" can't be reached`},
		"ngrok":       {env: []string{envNgrokToken, "t", envNgrokServer, "127.0.0.1:1"}, want: "fail  tunnel    ngrok can't be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			args := append([]string{"doctor", "--python", "/bin/false"}, tc.args...)
			code := run(t.Context(), args, env(append(tc.env, "HOME", t.TempDir())...), nil, &out, &errs)
			if code != 1 || !strings.Contains(out.String(), tc.want) {
				t.Errorf("exit code is %d:\n%s%s", code, &out, &errs)
			}
		})
	}
}

func TestDoctorTellsWhoMayVisit(t *testing.T) {
	edge := ngroktest.Start(t)
	var out, errs strings.Builder
	run(t.Context(), []string{"doctor", "--python", "/bin/false", "--allow-cidr", "203.0.113.0/24", "--allow-cidr", "::1"},
		env("HOME", t.TempDir(), envNgrokToken, "t", envNgrokServer, edge.Addr), nil, &out, &errs)
	if !strings.Contains(out.String(), "ok    visitors  only from 203.0.113.0/24, ::1/128") {
		t.Errorf("doctor says\n%s%s", &out, &errs)
	}
}

func TestDoctorTellsWhatAnotherExecutorHas(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	other, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(verdicts ...string) {
		t.Helper()
		var out, errs strings.Builder
		run(t.Context(), []string{"doctor", "--python", "/bin/false", "--state-dir", dir, "--listen", taken.Addr().String()}, env("HOME", t.TempDir()), nil, &out, &errs)
		for _, want := range verdicts {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s%s", want, &out, &errs)
			}
		}
	}
	check("fail  state     "+dir+" is used by another executor", "fail  listen ")
	other.close()
	taken.Close()
	check("ok    state ", "ok    listen ")
}
