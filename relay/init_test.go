package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func TestAnAddressAloneGoesWithTheSecretOfItsRuntime(t *testing.T) {
	home(t)
	code, _, errs := relay(t, environ(), "", "pair", "https://x.example")
	if code != 1 || !strings.Contains(errs, "relay init --name default") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d %q", code, errs)
	}
	relay(t, environ(), "", "init")
	relay(t, environ(), "", "init", "--name", "vm")
	url := executor(t, mine(t, "vm"))
	if code, out, errs := relay(t, environ(), "", "pair", "--name", "vm", url); code != 0 || !strings.Contains(out, " connected: executor 9.9") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, _ := relay(t, environ(), "", "pair", url); code != 0 || !strings.Contains(out, "not connected: wrong_secret") {
		t.Errorf("the default runtime's secret fits another's executor: %d %q", code, out)
	}
	if code, _, errs := relay(t, environ(), "", "pair", "--name", "third", url); code != 1 || !strings.Contains(errs, "relay init --name third") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := relay(t, environ(), "", "pair", "http://u:p@x.example"); code != 1 || strings.Contains(errs, "u:p") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestInitMakesASecretOnceAndPairsADomainForGood(t *testing.T) {
	home(t)
	code, out, errs := relay(t, environ(), "", "init")
	if code != 0 || !strings.Contains(out, `A secret was made for "default"`) || !strings.Contains(out, "NGROK_AUTHTOKEN") || !strings.Contains(out, "relay init --domain") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	secret := mine(t, "default").Reveal()
	if !strings.Contains(out, "EXECUTOR_SECRET  "+secret+"\n") {
		t.Errorf("%q", out)
	}
	for _, domain := range []string{"me.ngrok-free.app", "https://me.ngrok-free.app/"} {
		code, out, errs := relay(t, environ(), "", "init", "--domain", domain)
		if code != 0 || !strings.Contains(out, secret) || !strings.Contains(out, "NGROK_DOMAIN     me.ngrok-free.app\n") || strings.Contains(out, "was made") {
			t.Errorf("%s: %d %q %q", domain, code, out, errs)
		}
	}
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Get("default"); err != nil || r.URL != "https://me.ngrok-free.app" || r.Secret.Reveal() != secret {
		t.Errorf("%v %v", r.URL, err)
	}
	for _, domain := range []string{"me", "http://me.app", "me.app/x", "me.app:8", "u@me.app", "me.app?x", "a b.app"} {
		if code, _, errs := relay(t, environ(), "", "init", "--domain", domain); code != 1 || !strings.Contains(errs, "want a name such as") {
			t.Errorf("%s: %d %q", domain, code, errs)
		}
	}
}

func TestInitGivesEachRuntimeItsOwnSecretAndNamesIt(t *testing.T) {
	home(t)
	relay(t, environ(), "", "init")
	code, out, errs := relay(t, environ(), "", "init", "--name", "my-lab")
	if code != 0 || mine(t, "default").Equal(mine(t, "my-lab")) {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	for _, part := range []string{
		"EXECUTOR_SECRET_MY_LAB  " + mine(t, "my-lab").Reveal() + "\n", "NGROK_DOMAIN_MY_LAB     ", "NGROK_AUTHTOKEN         ",
		"write my-lab into the cell's field RUNTIME", "relay pair --name my-lab URL",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if code, _, errs := relay(t, environ(), "", "init", "--name", "my.lab"); code != 1 || !strings.Contains(errs, `EXECUTOR_SECRET_MY_LAB, as that of "my-lab" is`) {
		t.Errorf("%d %q", code, errs)
	}
	_, out, _ = relay(t, environ(), "", "runtimes")
	if strings.Count(out, "not connected yet") != 2 || strings.Contains(out, mine(t, "my-lab").Reveal()) {
		t.Errorf("%s", out)
	}
	for _, args := range [][]string{{"status"}, {"doctor"}, {"run", "-c", "1"}} {
		if code, out, errs := relay(t, environ(), "", args...); code == 0 || !strings.Contains(out+errs, "not connected yet") {
			t.Errorf("%v: %d %q %q", args, code, out, errs)
		}
	}
}

func TestInitRotatesASecretAndSaysWhatToReplace(t *testing.T) {
	home(t)
	relay(t, environ(), "", "init", "--name", "lab", "--domain", "me.ngrok-free.app")
	before := mine(t, "lab")
	code, out, errs := relay(t, environ(), "", "init", "--name", "lab", "--rotate")
	after := mine(t, "lab")
	if code != 0 || after.Equal(before) || !strings.Contains(out, "EXECUTOR_SECRET_LAB  "+after.Reveal()) || strings.Contains(out, before.Reveal()) ||
		!strings.Contains(out, "replace EXECUTOR_SECRET_LAB where you kept it, then start the executor again") || !strings.Contains(out, "paired with https://me.ngrok-free.app") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func TestTheSharedSecretOfAnEarlierReleaseIsTheDefaultRuntimesOwn(t *testing.T) {
	path := filepath.Join(home(t), "config", "colab-relay", "executor-secret")
	shared := auth.GenerateSecret()
	write(t, path, []byte(shared.Reveal()+"\n"))
	old := auth.Pairing{URL: "http://127.0.0.1:1", Secret: shared}
	relay(t, environ(), "", "pair", "--name", "lab", old.String()) // as it was paired by that release
	if code, _, errs := relay(t, environ(), "", "init", "--name", "new"); code != 0 || mine(t, "new").Equal(shared) {
		t.Errorf("a new runtime got the shared secret: %d %q", code, errs)
	}
	code, out, errs := relay(t, environ(), "", "init")
	if code != 0 || !mine(t, "default").Equal(shared) || !strings.Contains(out, "that an earlier release made for all runtimes") || !strings.Contains(errs, "relay init --name lab --rotate") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the shared file is left")
	}
}
