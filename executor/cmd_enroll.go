package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/enrolldir"
	"colabrelay/executor/statedir"
	"colabrelay/shared/bounded"
	"colabrelay/shared/enrollment"
)

const (
	// maxTokenBytes bounds an ngrok token from stdin.
	maxTokenBytes = 1 << 10
	// maxLastLine bounds the line of stderr that a relay is told.
	maxLastLine = 1 << 10
)

// unusedEnd is how long executors that no relay used may take to end, less than the cell waits
// for this one's key.
const unusedEnd = 15 * time.Second

// Causes why an enrollment ends without an executor.
var (
	errLate    = errors.New("too late")
	errUnused  = errors.New("no relay used the executor in time, so the executor ended: connect again")
	errStopped = errors.New("the executor was stopped before it was reachable")
)

// enroller is an executor that gets its secret and tunnel from a relay, by way of the
// folder in which it meets a notebook's cells. Both stay in this process's memory.
type enroller struct {
	job, relayKey, path string
	tokenFromStdin      bool

	cfg    config
	flags  *flag.FlagSet
	getenv func(string) string
	stdin  io.Reader
	stdout io.Writer
	stderr *lastLine

	dir      *enrolldir.Dir
	answered chan struct{} // closed when the executor is reachable
	used     chan struct{} // closed when the relay has used it
	secrets  []string      // never shown
}

// enroll is the command. It returns the exit code.
func enroll(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &enroller{
		getenv: getenv, stdin: stdin, stdout: stdout, stderr: &lastLine{w: stderr, end: bounded.Tail{Max: maxLastLine}},
		answered: make(chan struct{}), used: make(chan struct{}),
	}
	err := e.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(stderr, err)
		return 2
	}
	if e.dir, err = enrolldir.Open(e.path); err != nil {
		complain(stderr, err)
		return 1
	}
	if err = e.run(ctx); err != nil {
		e.dir.Close(e.redacted(err.Error()))
		return 1
	}
	e.dir.Close("")
	return 0
}

// parse reads the flags. What the grant decides can't be a flag, and neither can a ready
// file, which would hold the secret.
func (e *enroller) parse(args []string) error {
	e.flags = e.cfg.flagSet()
	e.flags.StringVar(&e.job, "job", "", "")
	e.flags.StringVar(&e.relayKey, "relay-key", "", "")
	e.flags.StringVar(&e.path, "dir", "", "")
	e.flags.BoolVar(&e.tokenFromStdin, "ngrok-token-stdin", false, "")
	if err := parseFlags(e.flags, args, e.stdout); err != nil {
		return err
	}
	faults := []error{unknownArgument(e.flags), enrollment.CheckJobID(e.job), enrollment.CheckPublicKey(e.relayKey)}
	if e.path == "" {
		faults = append(faults, errors.New("--dir: name the folder in which the notebook's cell waits"))
	}
	e.flags.Visit(func(f *flag.Flag) {
		if _, ofOneTunnel := tunnelFlags[f.Name]; ofOneTunnel || f.Name == "tunnel" || f.Name == "ready-file" {
			faults = append(faults, fmt.Errorf("--%s: can't be used with executor enroll; the relay decides the tunnel and gets the answer", f.Name))
		}
	})
	return errors.Join(faults...)
}

// run serves with the relay's grant until the executor ends. It returns its error after it
// has shown it.
func (e *enroller) run(ctx context.Context) error {
	_ = keepPrivate() // serve does it again, and reports an error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchSignals(startedInCell(e.getenv), func() { cancel(nil) })
	go e.limit(ctx, cancel)

	response, err := e.await(ctx)
	if err != nil {
		return e.shown(err)
	}
	e.cfg.enroll = enrollHooks{ready: e.ready(response), verified: sync.OnceFunc(e.isUsed)}
	if err := serve(ctx, e.cfg, os.Environ(), e.stdout, e.stderr); err != nil {
		return err
	}
	return e.shown(e.why(ctx))
}

func (e *enroller) shown(err error) error {
	if err != nil {
		complain(e.stderr, errors.New(e.redacted(err.Error())))
	}
	return err
}

// await shows the key, waits for the grant and sets the configuration.
func (e *enroller) await(ctx context.Context) (*enrollment.Response, error) {
	if err := e.cfg.readFolders(); err != nil {
		return nil, err
	}
	if statedir.InUse(e.cfg.stateDir) {
		ending, done := context.WithTimeout(ctx, unusedEnd)
		e.dir.EndUnused(ending)
		done()
	}
	if statedir.InUse(e.cfg.stateDir) {
		return nil, fmt.Errorf("another executor already runs on this VM (it uses the state folder %q): use that one, or end it with \"!pkill -x executor\" in a cell, and connect again", e.cfg.stateDir)
	}
	token, err := e.token(ctx)
	if err != nil {
		return nil, err
	}
	response, err := enrollment.NewResponse(e.job, e.relayKey)
	if err != nil {
		return nil, err
	}
	if err := e.dir.WriteKey(response.PublicKey()); err != nil {
		return nil, err
	}
	sealed, err := e.dir.AwaitGrant(ctx, enrollment.MaxSealedBytes)
	switch {
	case errors.Is(err, errLate):
		return nil, fmt.Errorf("no grant arrived within %v: connect again", enrollment.Lifetime)
	case ctx.Err() != nil:
		return nil, errStopped
	case err != nil:
		return nil, err
	}
	grant, err := response.Open(strings.TrimSpace(sealed))
	if err != nil {
		return nil, err
	}
	return response, e.configure(grant, token)
}

// token reads the machine's own ngrok token, which a cell sends through a pipe.
func (e *enroller) token(ctx context.Context) (string, error) {
	if !e.tokenFromStdin {
		return e.getenv(envNgrokToken), nil
	}
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(e.stdin, maxTokenBytes+1))
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		if r.err != nil || len(r.text) > maxTokenBytes {
			return "", fmt.Errorf("--ngrok-token-stdin: stdin must hold an ngrok token of at most %d bytes", maxTokenBytes)
		}
		return strings.TrimSpace(string(r.text)), nil
	case <-ctx.Done():
		return "", errors.New("--ngrok-token-stdin: stdin was not closed")
	}
}

// configure completes the configuration with the grant, as if it stood in the flags and
// the environment.
func (e *enroller) configure(g enrollment.Grant, token string) error {
	given := map[string]string{envSecret: g.Secret, envSecretFile: "", envNgrokToken: cmp.Or(g.NgrokToken, token)}
	e.secrets = []string{g.Secret, given[envNgrokToken]}
	if err := e.flags.Set("tunnel", g.Tunnel); err != nil {
		return err
	}
	if g.Domain != "" {
		if err := e.flags.Set("domain", g.Domain); err != nil {
			return err
		}
	}
	return e.cfg.finish(e.flags, func(name string) string {
		if value, ok := given[name]; ok {
			return value
		}
		return e.getenv(name)
	})
}

// ready returns the function that answers the relay.
func (e *enroller) ready(response *enrollment.Response) func(url, instanceID string) {
	answered := sync.OnceFunc(func() { close(e.answered) })
	return func(url, instanceID string) {
		answer, err := response.Answer(url, instanceID)
		if err == nil {
			err = e.dir.WriteAnswer(answer)
		}
		if err != nil {
			complain(e.stderr, err)
			return
		}
		answered()
	}
}

// isUsed notes that a relay has made a request.
func (e *enroller) isUsed() {
	close(e.used)
	if err := e.dir.WriteUsed(); err != nil {
		complain(e.stderr, err)
	}
}

// limit ends ctx if the executor is not reachable within the lifetime of an offer, or if the relay
// does not use it within another: an executor that nobody knows would block the next enrollment.
func (e *enroller) limit(ctx context.Context, cancel context.CancelCauseFunc) {
	stages := []struct {
		reached chan struct{}
		late    error
	}{{e.answered, errLate}, {e.used, errUnused}}
	for _, stage := range stages {
		timer := time.NewTimer(enrollment.Lifetime)
		select {
		case <-stage.reached:
			timer.Stop()
		case <-timer.C:
			cancel(stage.late)
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// why returns why the executor ended before the relay used it, or nil.
func (e *enroller) why(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errLate):
		return fmt.Errorf("the executor was not reachable within %v; its last message: %s", enrollment.Lifetime, cmp.Or(e.stderr.last(), "none"))
	case errors.Is(cause, errUnused):
		return errUnused
	}
	select {
	case <-e.answered:
		return nil
	default:
		return errStopped
	}
}

// redacted removes the secret and the token from a text.
func (e *enroller) redacted(text string) string {
	for _, secret := range e.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}

// lastLine passes on what is written, and remembers the end of it.
type lastLine struct {
	w io.Writer

	mu  sync.Mutex
	end bounded.Tail
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.end.Write(p)
	l.mu.Unlock()
	return l.w.Write(p)
}

// last returns the last line, or "".
func (l *lastLine) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.end.String())
	return text[strings.LastIndexByte(text, '\n')+1:]
}
