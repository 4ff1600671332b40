package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/fakevm"
)

func TestPutOfAKeyNeedsConsent(t *testing.T) {
	vm, getenv, dir := startVM(t)
	write(t, filepath.Join(dir, ".ssh", "key"), []byte("mine"))
	code, _, errs := relay(t, getenv, "y\n", "put", ".ssh/key", "x")
	if _, sent := vm.File("x"); code != 1 || sent || !strings.Contains(errs, "--force") {
		t.Errorf("without a terminal: %d, %s", code, errs)
	}
	if code, _, errs = relay(t, getenv, "", "put", "--force", ".ssh/key", "x"); code != 0 {
		t.Errorf("with --force: %d, %s", code, errs)
	}
	if got, _ := vm.File("x"); string(got) != "mine" {
		t.Errorf("the VM has %q", got)
	}
}

func TestASettingPermitsUploads(t *testing.T) {
	vm, _, dir := startVM(t)
	write(t, filepath.Join(dir, "certs", "ca.pem"), []byte("public"))
	for setting, want := range map[string]int{"": 1, dir + "/certs": 0, "/nowhere" + string(filepath.ListSeparator) + "~/certs": 0, "certs": 1} {
		getenv := environ("COLAB_URL", vm.URL, "COLAB_SECRET", vm.Secret.Reveal(), "RELAY_UPLOAD_ALLOW", setting)
		if code, _, errs := relay(t, getenv, "", "put", "certs/ca.pem", fakevm.Digest([]byte(setting))); code != want {
			t.Errorf("%q: %d, %s", setting, code, errs)
		}
	}
}

// The relay's own secrets are not for the tools, whatever is permitted.
func TestTheRelaysFoldersAreGuarded(t *testing.T) {
	_, getenv, dir := startVM(t)
	write(t, filepath.Join(dir, "config", "colab-relay", "notes.txt"), []byte("x"))
	if code, _, errs := relay(t, getenv, "", "put", filepath.Join(dir, "config", "colab-relay")); code != 1 || !strings.Contains(errs, "the relay's own secrets: \"notes.txt\"") {
		t.Errorf("%d, %s", code, errs)
	}
}

// A hard link gives a secret another name, not another owner.
func TestPutOfAHardLinkToASecretNeedsConsent(t *testing.T) {
	vm, getenv, dir := startVM(t)
	for name, why := range map[string]string{filepath.Join("config", "colab-relay", "runtimes.json"): "the relay's own secrets", filepath.Join(".ssh", "id_rsa"): "keys or passwords"} {
		write(t, filepath.Join(dir, name), []byte(name))
		link := filepath.Join(dir, "up", "data-"+filepath.Base(name)+".txt")
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(dir, name), link); err != nil {
			t.Fatal(err)
		}
		code, _, errs := relay(t, getenv, "", "put", link, "x")
		if _, sent := vm.File("x"); code != 1 || sent || !strings.Contains(errs, why) {
			t.Errorf("%s: %d, %s", name, code, errs)
		}
	}
}
