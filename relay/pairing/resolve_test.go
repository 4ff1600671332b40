package pairing

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

const envSecret = "a-secret-of-the-environment-0123456789"

func TestResolve(t *testing.T) {
	env := map[string]string{"COLAB_URL": "https://env.example/", "COLAB_SECRET": envSecret}
	for name, c := range map[string]struct {
		ask    string
		env    map[string]string
		stored []string
		want   string // name of the runtime, or
		err    error  // the error, which says
		says   string
	}{
		"the argument comes first":   {"b", env, []string{"a", "b", "default"}, "b", nil, ""},
		"then the environment":       {"", env, []string{"a", "default"}, "env", nil, ""},
		"the environment by name":    {"env", env, []string{"default"}, "env", nil, ""},
		"then the default":           {"", nil, []string{"a", "default", "z"}, "default", nil, ""},
		"then the only one":          {"", nil, []string{"lab"}, "lab", nil, ""},
		"several without a default":  {"", nil, []string{"b", "a"}, "", ErrAmbiguous, `"a", "b"`},
		"an unknown one":             {"c", env, []string{"a", "b"}, "", ErrUnknownName, `runtime "c" is not paired; the runtimes are "a", "b", "env"`},
		"one beside the environment": {"default", env, nil, "", ErrUnknownName, `runtime "default" is not paired; the only runtime is "env"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			for _, stored := range c.stored {
				put(t, s, made(t, stored))
			}
			got, err := Resolve(c.ask, func(key string) string { return c.env[key] }, s)
			if got.Name != c.want || !errors.Is(err, c.err) {
				t.Fatalf("got %v, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error says %q", err)
			}
		})
	}
}

func TestResolveReadsTheEnvironment(t *testing.T) {
	secret, err := auth.NewSecret(envSecret)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(envSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := auth.Pairing{URL: "https://paired.example/", Secret: secret}.String()
	for name, c := range map[string]struct {
		env       map[string]string
		url, says string // the runtime's address, or what the error says
	}{
		"secret in file":     {map[string]string{"COLAB_URL": "https://e", "COLAB_SECRET": "", "COLAB_SECRET_FILE": file}, "https://e", ""},
		"no secret":          {map[string]string{"COLAB_URL": "https://e"}, "", "COLAB_SECRET or COLAB_SECRET_FILE"},
		"short secret":       {map[string]string{"COLAB_URL": "https://e", "COLAB_SECRET": "hunter2"}, "", "COLAB_SECRET: secret is shorter"},
		"a pairing":          {map[string]string{"COLAB_PAIRING": text}, "https://paired.example", ""},
		"COLAB_URL precedes": {map[string]string{"COLAB_PAIRING": text, "COLAB_URL": "https://e", "COLAB_SECRET": envSecret}, "https://e", ""},
		"a cut pairing":      {map[string]string{"COLAB_PAIRING": text[:len(text)-9]}, "", "COLAB_PAIRING is not a pairing string"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Resolve("", func(key string) string { return c.env[key] }, Open(t.TempDir()))
			if c.says == "" && (err != nil || r.Name != EnvName || r.URL != c.url || r.Secret.Reveal() != envSecret) {
				t.Errorf("it is runtime %q at %q, %v", r.Name, r.URL, err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), text[20:40])) {
				t.Errorf("the error is %v, want one with %q and without the secret", err, c.says)
			}
		})
	}
}
