package vm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// LaunchSource is the source of launch.py.
//
//go:embed launch.py
var LaunchSource string

const (
	// callLimit bounds a call of launch.py, beside what it waits for itself.
	callLimit = 90 * time.Second
	// pollWait is how long one call waits on the VM for the executor.
	pollWait = 15 * time.Second
	// maxKeyIDs bounds the secrets of a VM that are remembered. Each start of its executor has one.
	maxKeyIDs = 8
	// executorLimit bounds the time from the executor's start until it is ready.
	executorLimit = 3 * time.Minute
)

// vmReport is what launch.py's prepare says.
type vmReport struct {
	Folder      string `json:"folder"`
	Machine     string `json:"machine"`
	SHA256      string `json:"sha256"` // of the executor that is there; empty for none
	Cloudflared bool   `json:"cloudflared"`
}

// executorReport is what launch.py's poll says.
type executorReport struct {
	Running bool           `json:"running"`
	Ready   *readyExecutor `json:"ready"`
	Log     string         `json:"log"`
}

type readyExecutor struct {
	URL        string `json:"url"`
	LocalURL   string `json:"local_url"`
	InstanceID string `json:"instance_id"`
}

// call calls a function of launch.py on the VM. The arguments are no secrets: kernels keep
// the code that they run.
func (a *creation) call(ctx context.Context, report any, function string, arguments ...any) error {
	marker := "colab-relay " + rand.Text() + " "
	given, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	var code strings.Builder
	code.WriteString("functions = {'__name__': 'colab_relay_launch'}\n")
	fmt.Fprintf(&code, "exec(compile(%s, 'colab_relay_launch', 'exec'), functions)\n", PythonString(LaunchSource))
	fmt.Fprintf(&code, "functions['call'](%s, %s, %s)\n", PythonString(marker), PythonString(function), PythonString(string(given)))
	out, err := a.b.Exec(ctx, a.rec.ID, code.String(), callLimit)
	if err != nil {
		return fmt.Errorf("%s on the VM: %w", function, err)
	}
	_, text, found := strings.Cut(out, marker)
	if text, _, _ = strings.Cut(text, "\n"); !found || json.Unmarshal([]byte(text), report) != nil {
		return fmt.Errorf("%s on the VM: its answer is not as expected", function)
	}
	return nil
}

// PythonString returns a literal of Python: JSON's are.
func PythonString(s string) string {
	text, _ := json.Marshal(s) // a string can always be encoded
	return string(text)
}

// architectures are Go's names of the processors that Linux names so.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// Architecture returns Go's name of a processor for which there are executors, else "".
func Architecture(machine string) string { return architectures[machine] }

// launch brings the executor onto the VM, starts it, and pairs it.
func (a *creation) launch(ctx context.Context) error {
	if err := a.update(func(r *Record) { r.Step = Created }); err != nil { // no longer Paired
		return err
	}
	a.say("preparing the VM")
	var v vmReport
	if err := a.call(ctx, &v, "prepare", a.rec.ID); err != nil {
		return err
	}
	if !strings.HasPrefix(v.Folder, "/") || !strings.HasSuffix(v.Folder, "/"+a.rec.ID) {
		return fmt.Errorf("prepare on the VM: the folder %q is not as expected", plain.Line(v.Folder))
	}
	ways, err := a.ways(a.b, a.request.Way, v.Cloudflared)
	if err != nil {
		return err
	}
	program, err := a.upload(ctx, v)
	if err != nil {
		return err
	}
	var failures []error
	for _, w := range ways {
		err := a.try(ctx, v, program, w)
		if err == nil || !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrLaunch) {
			return err
		}
		a.say(fmt.Sprintf("not reached by %s: %s", w, shown(err)))
		failures = append(failures, fmt.Errorf("by %s: %w", w, err))
	}
	return errors.Join(failures...)
}

// upload copies the executor to the VM, unless it is there. It returns its digest.
func (a *creation) upload(ctx context.Context, v vmReport) (sha256 string, err error) {
	arch := Architecture(v.Machine)
	if arch == "" {
		return "", fmt.Errorf("%w: there is no executor for the VM's processor %q", ErrLaunch, plain.Line(v.Machine))
	}
	program, err := a.cfg.Program(ctx, arch)
	if err != nil || program.SHA256 == v.SHA256 {
		return program.SHA256, err
	}
	a.say("fetching the executor")
	content, err := program.Content(ctx)
	if err != nil {
		return "", err
	}
	a.say(fmt.Sprintf("uploading the executor, %d MB", (len(content)+1e6-1)/1e6))
	if err := a.b.Upload(ctx, a.rec.ID, v.Folder+"/upload", content); err != nil {
		return "", fmt.Errorf("upload the executor: %w", err)
	}
	return program.SHA256, nil
}

// try starts the executor so that it can be reached in this way, and pairs it if it answers.
func (a *creation) try(ctx context.Context, v vmReport, sha256 string, w Way) error {
	secret := auth.GenerateSecret()
	err := a.update(func(r *Record) {
		r.KeyIDs = append(r.KeyIDs, secret.KeyID())
		r.KeyIDs = slices.Clone(r.KeyIDs[max(0, len(r.KeyIDs)-maxKeyIDs):])
	})
	if err != nil {
		return err
	}
	a.say("starting the executor, to be reached by " + string(w))
	settings := map[string]string{"EXECUTOR_SECRET": secret.Reveal()}
	if w == Ngrok {
		settings["NGROK_AUTHTOKEN"] = a.cfg.NgrokToken
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := a.b.Upload(ctx, a.rec.ID, v.Folder+"/settings/start.json", text); err != nil {
		return fmt.Errorf("upload the executor's settings: %w", err)
	}
	var started struct{ PID int }
	if err := a.call(ctx, &started, "start", a.rec.ID, sha256, a.flags(w)); err != nil {
		if raised, ok := errors.AsType[*ExecError](err); ok {
			err = fmt.Errorf("%w: %s", ErrLaunch, a.redacted(raised.Error(), secret))
		}
		return err
	}
	ready, err := a.awaitExecutor(ctx, secret)
	if err != nil {
		return err
	}
	return a.reach(ctx, w, ready, secret)
}

// awaitExecutor waits until the executor is ready. Each call of poll waits on the VM.
func (a *creation) awaitExecutor(ctx context.Context, secret auth.Secret) (ready readyExecutor, err error) {
	a.say("waiting for the executor")
	deadline := time.Now().Add(executorLimit)
	err = keep.Repeat(ctx, time.Second, func() (bool, error) {
		var e executorReport
		err := a.call(ctx, &e, "poll", a.rec.ID, pollWait.Seconds())
		switch {
		case err != nil:
		case e.Ready != nil && e.Running:
			ready = *e.Ready
			return true, nil
		case !e.Running:
			err = fmt.Errorf("%w: it ended; its last output: %s", ErrLaunch, a.redacted(e.Log, secret))
		case time.Now().After(deadline):
			err = fmt.Errorf("%w: it was not ready after %s; its last output: %s", ErrLaunch, executorLimit, a.redacted(e.Log, secret))
		}
		return false, err
	})
	return ready, err
}

// redacted makes text of the VM safe to show.
func (a *creation) redacted(text string, secret auth.Secret) string {
	text = strings.ReplaceAll(text, secret.Reveal(), "[secret]")
	if a.cfg.NgrokToken != "" {
		text = strings.ReplaceAll(text, a.cfg.NgrokToken, "[token]")
	}
	return plain.Line(text)
}

// maxProgram bounds the executor, in bytes. It has about 20 MB.
const maxProgram = 128 << 20

// Program is an executor for VMs.
type Program struct {
	SHA256 string // in hex
	// Content returns the program, with this digest.
	Content func(context.Context) ([]byte, error)
}

// elfMachines are the values of e_machine in ELF's header, by Go's names of the processors.
var elfMachines = map[string]uint16{"amd64": 62, "arm64": 183}

// elfMachine returns e_machine of a 64-bit, little-endian ELF file, 0 for any other content.
// (The package debug/elf would make the relay 90 KB larger.)
func elfMachine(content []byte) uint16 {
	if len(content) < 64 || string(content[:6]) != "\x7fELF\x02\x01" {
		return 0
	}
	return binary.LittleEndian.Uint16(content[18:])
}

// FileProgram returns the executor in a file, which must be for Linux and the processor; for
// any if arch is empty.
func FileProgram(path, arch string) (Program, error) {
	content, err := bounded.ReadFile(path, maxProgram)
	if err != nil {
		return Program{}, fmt.Errorf("read the executor: %w", err)
	}
	switch machine := elfMachine(content); {
	case machine == 0:
		return Program{}, fmt.Errorf("%w: %q is not an executor for Linux", ErrBadRequest, path)
	case arch != "" && machine != elfMachines[arch]:
		return Program{}, fmt.Errorf("%w: %q is for another processor than the VM's, linux/%s", ErrBadRequest, path, arch)
	}
	return Program{digestOf(content), func(context.Context) ([]byte, error) { return content, nil }}, nil
}

// ReleaseProgram returns the executor of a release. Its content is fetched once and kept in
// the folder cache; a copy with another digest is fetched again.
func ReleaseProgram(r bootstrap.Release, arch, cache string) (Program, error) {
	digest := map[string]string{"amd64": r.SHA256AMD64, "arm64": r.SHA256ARM64}[arch]
	if digest == "" {
		return Program{}, fmt.Errorf("release %q has no executor for the VM's processor, linux/%s", r.Version, arch)
	}
	name := "executor-linux-" + arch
	kept := filepath.Join(cache, name+"-"+digest[:min(16, len(digest))])
	return Program{digest, func(ctx context.Context) ([]byte, error) {
		if content, err := bounded.ReadFile(kept, maxProgram); err == nil && digestOf(content) == digest {
			return content, nil
		}
		content, err := client.ReleaseFile(ctx, r.Releases+"/"+r.Version+"/"+name, maxProgram)
		if err != nil {
			return nil, fmt.Errorf("fetch the executor: %w", err)
		}
		if digestOf(content) != digest {
			return nil, fmt.Errorf("fetch the executor: %s of release %q is not the file that SHA256SUMS names (its SHA-256 differs)", name, r.Version)
		}
		_ = keep.WriteFile(kept, content) // without a copy it is fetched again
		return content, nil
	}}, nil
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
