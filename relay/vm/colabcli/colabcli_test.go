package colabcli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// awaitAsked waits until `colab new` has asked for a VM.
func awaitAsked(t *testing.T, program *colabclitest.Program) {
	t.Helper()
	within.Until(t, "a VM is asked for", program.Asked)
}

// A caller that goes away does not end `colab new`: the VM would have no name.
func TestColabNewGoesOnAfterItsCaller(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	program.Fault("hold_new", true)
	id := vm.NewID()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		awaitAsked(t, program)
		cancel()
	}()
	if err := b.Create(ctx, id, vm.Spec{Accelerator: vm.CPU}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := New(b.cfg).Delete(within.Context(t), id); err == nil || !strings.Contains(err.Error(), "still starting it") {
		t.Errorf("deleted by another relay while it is created: %v", err)
	}
	program.Fault("hold_new", nil)
	other := New(b.cfg) // such as the next relay, after this one was killed
	if err := other.Create(within.Context(t), id, vm.Spec{Accelerator: vm.CPU}); !errors.Is(err, vm.ErrExists) {
		t.Errorf("the next Create: %v", err)
	}
	if len(program.Endpoints()) != 1 {
		t.Errorf("%d VMs run", len(program.Endpoints()))
	}
	if err := other.Delete(within.Context(t), id); err != nil {
		t.Error(err)
	}
}

func TestAVMWhoseNameWasNeverStoredIsListedByItsID(t *testing.T) {
	t.Parallel()
	b, program := open(t)
	program.Start("-s", "mine")
	program.Fault("kill_new", true)
	id := vm.NewID()
	err := b.Create(within.Context(t), id, vm.Spec{Accelerator: "T4"})
	if err == nil || !strings.Contains(err.Error(), "Manage sessions") {
		t.Fatalf("a killed `colab new`: %v", err)
	}
	all, err := b.List(within.Context(t))
	if err != nil || len(all) != 2 || !slices.Contains(all, vm.Machine{ID: id, Spec: vm.Spec{Accelerator: "T4"}}) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := b.Create(within.Context(t), id, vm.Spec{Accelerator: "T4"}); err == nil || errors.Is(err, vm.ErrExists) || len(program.Endpoints()) != 2 {
		t.Errorf("created again: %v", err)
	}
	if err := b.Delete(within.Context(t), id); err == nil || !strings.Contains(err.Error(), "Manage sessions") {
		t.Errorf("delete: %v", err)
	}
	for _, endpoint := range program.Endpoints() {
		if endpoint != program.Names()["mine"] {
			program.EndEndpoint(endpoint) // the person stops it on Colab's page
		}
	}
	if err := b.Delete(within.Context(t), id); err != nil {
		t.Errorf("delete of a VM that is gone: %v", err)
	}
	if all, err := b.List(within.Context(t)); err != nil || len(all) != 1 || all[0].ID != "mine" {
		t.Errorf("%+v, %v", all, err)
	}
}

// The program forgets the name of a VM whose proxy answers 404 once.
func TestAVMThatTheProgramForgotIsNotGone(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	id := vm.NewID()
	if err := b.Create(within.Context(t), id, vm.Spec{Accelerator: vm.CPU}); err != nil {
		t.Fatal(err)
	}
	program.Fault("lost", true)
	uploadError := b.Upload(within.Context(t), id, "/tmp/x", nil)
	_, execError := b.Exec(within.Context(t), id, "print(1)", time.Minute)
	for call, err := range map[string]error{"upload": uploadError, "exec": execError, "delete": b.Delete(within.Context(t), id)} {
		if err == nil || errors.Is(err, vm.ErrGone) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if all, err := New(b.cfg).List(within.Context(t)); err != nil || !slices.Equal(all, []vm.Machine{{ID: id, Spec: vm.Spec{Accelerator: vm.CPU}}}) {
		t.Errorf("another relay lists %+v, %v", all, err)
	}
	program.EndEndpoint(program.Endpoints()[0])
	if _, err := b.Exec(within.Context(t), id, "print(1)", time.Minute); !errors.Is(err, vm.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	if known, err := b.records.all(); err != nil || len(known) != 0 {
		t.Errorf("remembered: %v, %v", known, err)
	}
}

// Without its records, a relay can list and stop VMs, and starts none that may exist already.
func TestDamagedRecordsStartNoSecondVM(t *testing.T) {
	t.Parallel()
	b, program := open(t)
	program.Start("-s", "mine")
	if err := os.WriteFile(b.records.Path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := b.List(within.Context(t)); err != nil || !slices.Equal(all, []vm.Machine{{ID: "mine", Spec: vm.Spec{Accelerator: vm.CPU}, Ready: true}}) {
		t.Errorf("listed %+v, %v", all, err)
	}
	if err := b.Create(within.Context(t), vm.NewID(), vm.Spec{Accelerator: vm.CPU}); err == nil || !strings.Contains(err.Error(), b.records.damaged()) || len(program.Endpoints()) != 1 {
		t.Errorf("created: %v", err)
	}
}

func TestTokensAreNotShown(t *testing.T) {
	for _, text := range []string{
		"500 Server Error: Internal Server Error for url: https://8080-m.prod.colab.dev/api/contents/x?authuser=0&colab-runtime-proxy-token=SECRET",
		"'Authorization': 'Bearer SECRET', 'Accept': 'x'",
		`{"token": "SECRET"}`, "refresh_token=SECRET", "Bearer SECRET",
		"https://accounts.google.com/o/oauth2/auth?state=SECRET",
	} {
		if got := lastLines(result{stderr: text}); strings.Contains(got, "SECRET") {
			t.Errorf("shown: %s", got)
		}
	}
}

func TestTheProgramGetsNoSecrets(t *testing.T) {
	t.Parallel()
	b, program := open(t)
	b.cfg.Environ = append(b.cfg.Environ, "NGROK_AUTHTOKEN=S", "COLAB_SECRET=S", "RELAY_HOLD=1s", "AWS_SECRET_ACCESS_KEY=S", "PYTHONSTARTUP=S", "PYTHONPATH=S", "HTTPS_PROXY=http://proxy", "LC_ALL=C.UTF-8")
	if _, err := b.List(within.Context(t)); err != nil {
		t.Fatal(err)
	}
	got := program.Calls()[0].Environ
	for name, value := range got {
		if value == "S" {
			t.Errorf("got %s", name)
		}
	}
	if got["HTTPS_PROXY"] != "http://proxy" || got["LC_ALL"] != "C.UTF-8" || got["HOME"] == "" || got["RELAY_HOLD"] != "" {
		t.Errorf("got %v", got)
	}
}

func TestContentIsNeverAnArgumentAndLeavesNoFile(t *testing.T) {
	tier.Long(t)
	b, program := open(t)
	t.Setenv("TMPDIR", t.TempDir())
	id := vm.NewID()
	if err := b.Create(within.Context(t), id, vm.Spec{Accelerator: vm.CPU}); err != nil {
		t.Fatal(err)
	}
	remote := filepath.Join(t.TempDir(), "secret")
	if err := b.Upload(within.Context(t), id, remote, []byte("the-content")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(within.Context(t), id, "print(open('"+remote+"').read())", time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, c := range program.Calls() {
		if strings.Contains(strings.Join(c.Argv, " "), "the-content") {
			t.Errorf("called with %q", c.Argv)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := b.Upload(within.Context(t), id, remote, make([]byte, vm.MaxUpload+1)); err == nil {
		t.Error("uploaded more than the bound")
	}
}

// FuzzRows reads any output of `colab sessions`. A list is whole, or there is none.
func FuzzRows(f *testing.F) {
	row := "[a] gpu-1 | Hardware: T4 | Shape: Standard | Variant: GPU\n"
	for _, seed := range []string{row, noRows, "[colab] hello\n" + row + row, "[?] x | Hardware: CPU | Shape: High-RAM | Variant: -\r\n", noRows + "\n" + row, "[] ] x | Hardware: \x1b | Shape: Standard | Variant: \x1b"} {
		f.Add(seed, "", false)
	}
	f.Add(row, noCredentials, true)
	f.Fuzz(func(t *testing.T, stdout, stderr string, dropped bool) {
		rows, err := parseRows(result{stdout: stdout, stderr: stderr, dropped: dropped})
		if err != nil {
			wantShort(t, err)
			return
		}
		if len(rows) > vm.MaxMachines || dropped || len(rows) != strings.Count(stdout, "| Hardware: ") && !strings.Contains(stdout, "[colab] ") {
			t.Errorf("%q is a list of %d VMs", stdout, len(rows))
		}
		for _, r := range rows {
			if r.endpoint == "" {
				t.Errorf("%q has the VM %+v", stdout, r)
			}
		}
	})
}

// FuzzOutcome reads any output of `colab exec`, of which the VM writes a part.
func FuzzOutcome(f *testing.F) {
	const mark = "colab-relay-X:"
	for _, seed := range []string{
		`text` + mark + `{"output":"YQ==","name":"","value":""}` + "\nmore", mark + `{"output":"YQ==","name":"E","value":"v"}`,
		mark + "\n" + mark + "{}", mark + `{"output":"!"}`, mark + "null", "",
	} {
		f.Add(seed, "ColabRequestError: Failed to issue request POST https://x?token=1: Bad Request\n", 1)
	}
	f.Fuzz(func(t *testing.T, stdout, stderr string, code int) {
		out, found := outcomeIn(stdout, mark)
		if found && !strings.Contains(stdout, mark) {
			t.Errorf("%q has an outcome", stdout)
		}
		if text, err := out.result(); len(text) > vm.MaxOutput || err != nil && len(err.Error()) > 3*maxValue {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		wantShort(t, refusal("new", result{code: code, stdout: stdout, stderr: stderr}))
	})
}

// wantShort checks an error that shows what another program printed.
func wantShort(t *testing.T, err error) {
	t.Helper()
	if len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\x1b\r\u009b") {
		t.Errorf("%q", err.Error())
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile returns a Backend whose program is a shell script. It is written while no process is
// started: such a process would hold the open file for a moment, and the program were busy.
func hostile(t *testing.T, script string) *Backend {
	t.Helper()
	path := filepath.Join(t.TempDir(), "colab")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return New(Config{Program: path, Dir: t.TempDir()})
}

// A program that does not do what Google's does: nothing that it prints is taken for an
// answer, shown unsafely or kept without a bound.
func TestOutputThatMakesNoSenseIsAnError(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":             "true",
		"escapes":             `printf '\033]0;title\007\033[2J[a\033[31m] b | hello\n'`,
		"a shape that is new": "echo '[a] b | Hardware: CPU | Shape: Huge | Variant: DEFAULT'",
		"a row and an error":  "echo '[a] b | Hardware: CPU | Shape: Standard | Variant: DEFAULT'; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hostile(t, script)
			mustNotList(t, b)
			if _, err := b.Exec(t.Context(), "colab-relay-0", "print(1)", time.Second); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("exec: %v", err)
			}
			if err := b.Delete(t.Context(), "colab-relay-0"); err == nil {
				t.Error("deleted")
			}
		})
	}
}

func TestOutputWithoutEndIsNotKept(t *testing.T) {
	mustNotList(t, hostile(t, "head -c 100000000 /dev/zero"))
}

// mustNotList fails the test unless List returns an error that is safe to show.
func mustNotList(t *testing.T, b *Backend) {
	t.Helper()
	all, err := b.List(t.Context())
	if err == nil {
		t.Fatalf("%d VMs", len(all))
	}
	if text := err.Error(); len(text) > 2000 || strings.ContainsAny(text, "\x1b\x07\x00\n") {
		t.Errorf("the error is %d bytes: %.300q", len(text), text)
	}
	if errors.Is(err, vm.ErrGone) || errors.Is(err, vm.ErrExists) {
		t.Errorf("it counts as proof: %v", err)
	}
}

func TestAForgedOutcomeIsNotTaken(t *testing.T) {
	for name, script := range map[string]string{
		"another mark": `echo 'colab-relay-AAAA:{"output":"eA==","name":"","value":""}'`,
		"a cut line":   `sed -n 's/.*"\(colab-relay-[A-Z0-9]*:\)".*/\1{"output":"eA=="/p'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := hostile(t, `[ "$1" = exec ] || exit 1; `+script).Exec(t.Context(), "colab-relay-0", "print(1)", time.Second)
			if err == nil {
				t.Errorf("taken: %q", out)
			}
		})
	}
}

func TestNamesThatCouldBeOptionsAreNotPassed(t *testing.T) {
	b := hostile(t, "echo \"$*\" >&2; exit 1")
	for _, id := range []string{"", "--gpu", "a b", "../a", strings.Repeat("a", 101)} {
		createError := b.Create(t.Context(), id, vm.Spec{Accelerator: vm.CPU})
		_, execError := b.Exec(t.Context(), id, "1", time.Second)
		for call, err := range map[string]error{"create": createError, "exec": execError, "upload": b.Upload(t.Context(), id, "/tmp/x", nil), "touch": b.Touch(t.Context(), id)} {
			if !errors.Is(err, vm.ErrUnknown) {
				t.Errorf("%s of %q: %v", call, id, err)
			}
		}
	}
	if entries, err := os.ReadDir(b.cfg.Dir); err != nil || len(entries) != 0 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func open(t *testing.T) (*Backend, *colabclitest.Program) {
	t.Helper()
	program := colabclitest.Install(t)
	return New(Config{Program: program.Path, Dir: t.TempDir(), Environ: program.Environ()}), program
}

func TestTheBackendPassesTheSuite(t *testing.T) {
	status := map[error]int{vm.ErrNoneFree: 503, vm.ErrNotEligible: 400, vm.ErrTooMany: 412}
	vmtest.Suite(t, func(t *testing.T) vmtest.Fixture {
		b, program := open(t)
		return vmtest.Fixture{
			Backend: b,
			Refuse:  func(reason error) { program.Fault("refuse", status[reason]) },
			Reasons: []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrTooMany},
			End:     program.End,
			Break:   func() { program.Fault("unreachable", true) },
		}
	})
}

// The stand-in takes no other commands, options and arguments than table.json has.
func TestTheStandInTakesWhatGooglesProgramTakes(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	offered := colabclitest.ReadWheel(t, wheel)
	for name, takes := range colabclitest.ReadTable(t) {
		if !reflect.DeepEqual(offered[name], takes) {
			t.Errorf("colab %s takes %+v, the stand-in %+v", name, offered[name], takes)
		}
	}
}
