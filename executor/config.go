package main

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"colabrelay/executor/account"
	"colabrelay/executor/audit"
	"colabrelay/executor/files"
	"colabrelay/executor/tunnel"
	"colabrelay/executor/tunnel/child"
	"colabrelay/executor/tunnel/ngrok"
	"colabrelay/shared/auth"
	"colabrelay/shared/filename"
)

// Environment variables that the executor reads, beside those of the audit log and the tunnels below;
// executor/probe reads others to recognise the platform. Secrets are never flags, because every
// process list shows flags.
const (
	envSecret     = "EXECUTOR_SECRET"
	envSecretFile = "EXECUTOR_SECRET_FILE"
)

// usage is what --help prints, with {program} in place of the program's name.
//
//go:embed usage.txt
var usage string

// config holds every setting, checked.
type config struct {
	listen    string
	tunnel    tunnelConfig
	workDir   string
	stateDir  string
	python    string // empty: look for one
	allow     []string
	readyFile string // empty: none
	audit     auditConfig
	userName  string // empty: the kernel runs as the executor's own user
	user      *account.User

	secret     auth.Secret
	secretFile string // empty: the secret is not from a file
	generated  bool   // the executor made the secret, so the console must show it

	inCell bool // a cell of a notebook started the executor, so it ends with the cell's terminal

	enroll enrollHooks // of the command enroll; else empty
}

// enrollHooks tell the command enroll what happens. Nil functions are not called.
type enrollHooks struct {
	ready    func(url, instanceID string) // kernel and tunnel are up, or the URL has changed
	verified func()                       // a holder of the secret has made a request
}

// twoDashes writes flags in the errors of package flag as the usage does.
var twoDashes = strings.NewReplacer("for flag -", "for flag --", "defined: -", "defined: --", "argument: -", "argument: --")

// parseConfig reads flags and environment and reports all faults together.
// flag.ErrHelp means that help was requested and written to w.
func parseConfig(args []string, getenv func(string) string, w io.Writer) (c config, err error) {
	flags := c.flagSet()
	if err := parseFlags(flags, args, w); err != nil {
		return c, err
	}
	return c, c.finish(flags, getenv)
}

// flagSet returns the flags, which set c.
func (c *config) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("executor", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints errors
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8000", "")
	c.tunnel.addFlags(flags)
	flags.StringVar(&c.workDir, "workdir", "", "")
	flags.StringVar(&c.stateDir, "state-dir", "", "")
	flags.StringVar(&c.python, "python", "", "")
	flags.Func("allow-path", "", func(s string) error { c.allow = append(c.allow, s); return nil })
	flags.StringVar(&c.readyFile, "ready-file", "", "")
	c.audit.addFlags(flags)
	flags.StringVar(&c.userName, "user", "", "")
	return flags
}

// parseFlags reads flags. flag.ErrHelp means that help was requested and written to w.
func parseFlags(flags *flag.FlagSet, args []string, w io.Writer) error {
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(w, strings.ReplaceAll(usage, "{program}", programName))
		return err
	}
	if err != nil {
		return fmt.Errorf("%s (%s --help lists the flags)", twoDashes.Replace(err.Error()), programName)
	}
	return noEmptyFlag(flags)
}

// noEmptyFlag refuses flags without a value, as in --user "$UNSET": such a flag must not turn
// off what it is there to turn on.
func noEmptyFlag(flags *flag.FlagSet) error {
	var faults []error
	flags.Visit(func(f *flag.Flag) {
		if text, ok := f.Value.(flag.Getter); ok && text.Get() == "" {
			faults = append(faults, fmt.Errorf("--%s is empty: give it a value, or omit the flag", f.Name))
		}
	})
	return errors.Join(faults...)
}

// finish reads the rest from the environment, and checks all of it.
func (c *config) finish(flags *flag.FlagSet, getenv func(string) string) error {
	c.inCell = startedInCell(getenv)
	if err := c.replaceHome(getenv); err != nil {
		return err
	}
	return errors.Join(unknownArgument(flags), c.checkListen(), c.tunnel.finish(flags, getenv), c.readSecret(getenv), c.readFolders(), c.audit.finish(getenv, c))
}

// replaceHome replaces a leading ~ of all paths: a shell does not in --workdir=~/x, nor where the
// executor is started without one.
func (c *config) replaceHome(getenv func(string) string) error {
	c.audit.path = cmp.Or(c.audit.path, getenv(envAudit))
	c.tunnel.ngrok.CAFile = getenv(envNgrokCA)
	paths := map[string]*string{
		"--workdir": &c.workDir, "--state-dir": &c.stateDir, "--python": &c.python, "--ready-file": &c.readyFile, "--audit": &c.audit.path,
		"--ssh-key": &c.tunnel.ssh.KeyFile, "--ssh-known-hosts": &c.tunnel.ssh.KnownHosts, envNgrokCA: &c.tunnel.ngrok.CAFile,
	}
	for i := range c.allow {
		paths[fmt.Sprintf("--allow-path %d", i+1)] = &c.allow[i]
	}
	var faults []error
	for _, flag := range slices.Sorted(maps.Keys(paths)) {
		typed, err := filename.Typed(*paths[flag])
		if *paths[flag] = typed; err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", flag, err))
		}
	}
	return errors.Join(faults...)
}

func unknownArgument(flags *flag.FlagSet) error {
	if flags.NArg() == 0 {
		return nil
	}
	return fmt.Errorf("unknown argument %q (%s --help lists the commands and flags)", flags.Arg(0), programName)
}

func (c *config) checkListen() error {
	_, port, err := net.SplitHostPort(c.listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--listen %q: must be host:port, such as 127.0.0.1:8000", c.listen)
	}
	return nil
}

// readSecret reads the secret from the environment or a file, or makes one.
func (c *config) readSecret(getenv func(string) string) error {
	text, file := getenv(envSecret), getenv(envSecretFile)
	var err error
	source := envSecret
	switch {
	case text != "" && file != "":
		return fmt.Errorf("%s and %s are both set: set only one", envSecret, envSecretFile)
	case file != "":
		source, c.secretFile = envSecretFile, file
		c.secret, err = auth.ReadSecretFile(file)
	case text != "":
		c.secret, err = auth.NewSecret(text)
	default:
		c.secret, c.generated = auth.GenerateSecret(), true
	}
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// workDirs are tried in this order: Colab's, Kaggle's, the current directory.
var workDirs = []string{"/content", "/kaggle/working", "."}

// readFolders sets and checks the folders, and the user who must be able to use some of
// them and none of the others.
func (c *config) readFolders() error {
	faults := []error{c.findUser()}
	if c.workDir == "" {
		for _, c.workDir = range workDirs {
			if isDir(c.workDir) {
				break
			}
		}
	}
	absolute := func(flag string, path *string) {
		abs, err := filepath.Abs(*path)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %q: %w", flag, *path, err))
		}
		*path = abs
	}
	absolute("--workdir", &c.workDir)
	if c.stateDir == "" && c.user != nil {
		c.stateDir = rootStateDir
	}
	c.stateDir = cmp.Or(c.stateDir, filepath.Join(c.workDir, ".colab-relay"))
	absolute("--state-dir", &c.stateDir)
	if c.readyFile != "" {
		absolute("--ready-file", &c.readyFile)
	}
	mustExist := func(flag, dir string) {
		if !isDir(dir) {
			faults = append(faults, fmt.Errorf("%s %q: no such folder", flag, dir))
		}
	}
	mustExist("--workdir", c.workDir)
	for _, dir := range c.allow {
		mustExist("--allow-path", dir)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return c.checkUser()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Environment variables of the audit log. A flag overrides its variable.
const (
	envAudit     = "EXECUTOR_AUDIT"
	envAuditCode = "EXECUTOR_AUDIT_CODE"
)

// auditConfig says what is recorded of requests and executions.
type auditConfig struct {
	path string // empty: nothing
	code bool
}

func (c *auditConfig) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&c.path, "audit", "", "")
	flags.BoolVar(&c.code, "audit-code", false, "")
}

// finish reads the rest from the environment, and checks all of it. The folders of all are
// read already.
func (c *auditConfig) finish(getenv func(string) string, all *config) (err error) {
	if text := getenv(envAuditCode); text != "" && !c.code {
		if c.code, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s=%q: must be 1 or 0", envAuditCode, text)
		}
	}
	switch {
	case c.path != "":
		return c.place(all)
	case c.code:
		return errors.New("--audit-code: name the file with --audit")
	}
	return nil
}

// place makes the path absolute. It refuses a file that any holder of the secret could
// download, replace or delete by the requests that the log records.
func (c *auditConfig) place(all *config) (err error) {
	if c.path, err = filepath.Abs(c.path); err != nil {
		return fmt.Errorf("--audit: %w", err)
	}
	if folder, served := files.ServedFrom(all.workDir, all.allow, all.stateDir, c.path); folder != "" {
		return fmt.Errorf("--audit %q: relays can read and replace files there, because they may use the folder %q; choose a path outside all folders that they may use (%s), or %q",
			c.path, folder, strings.Join(served, ", "), filepath.Join(all.stateDir, "audit.log"))
	}
	return all.protect("--audit", &c.path)
}

// open opens the audit log. It is nil if there is none.
func (c auditConfig) open(keyID, instanceID string, log *slog.Logger) (*audit.Log, error) {
	if c.path == "" {
		return nil, nil
	}
	return audit.Open(audit.Config{Path: c.path, Code: c.code, KeyID: keyID, InstanceID: instanceID, Version: version, Log: log})
}

// rootStateDir is the default of --state-dir with --user. The kernel's user must not be
// able to replace it, as it could in the working directory.
const rootStateDir = "/var/lib/colab-relay"

// findUser finds the user of --user.
func (c *config) findUser() (err error) {
	if c.userName == "" || c.user != nil {
		return nil
	}
	if c.user, err = account.Find(c.userName); err != nil {
		return fmt.Errorf("--user %s: %w", c.userName, err)
	}
	return nil
}

// checkUser checks that the kernel's user can work, and that it can neither read the
// executor's secrets nor replace what the executor, as root, runs, writes or trusts.
func (c *config) checkUser() error {
	if c.user == nil {
		return nil
	}
	return errors.Join(
		c.checkWritable("--workdir", c.workDir, "change its owner, or choose another folder"),
		c.checkWritable("the temp folder", os.TempDir(), "set TMPDIR to a folder such as /tmp"),
		c.protect("--state-dir", &c.stateDir),
		c.protectReadyFile(),
		c.protectSecretFile(envSecretFile, c.secretFile),
		c.protectProgram(),
		c.protectTunnel(),
	)
}

func (c *config) checkWritable(what, dir, hint string) error {
	if err := c.user.CheckCanWrite(dir); err != nil {
		return fmt.Errorf("--user %s: the user can't write to %s %q: %w: %s", c.user, what, dir, err, hint)
	}
	return nil
}

// protect checks that the user can't replace what is at a path, if there is one, and resolves
// its links.
func (c *config) protect(what string, path *string) error {
	if *path == "" {
		return nil
	}
	real, err := c.user.CheckOutOfReach(*path)
	if err != nil {
		return fmt.Errorf("--user %s: %s %w: choose a path that only root can change", c.user, what, err)
	}
	*path = real
	return nil
}

func (c *config) protectReadyFile() error {
	if c.readyFile == "" {
		return nil
	}
	dir := filepath.Dir(c.readyFile)
	err := c.protect("--ready-file", &dir)
	c.readyFile = filepath.Join(dir, filepath.Base(c.readyFile))
	return err
}

func (c *config) protectSecretFile(what, path string) error {
	if path == "" {
		return nil
	}
	if c.user.CanRead(path) {
		return fmt.Errorf("--user %s: the user can read %s %q: let only root read it, with chmod 600", c.user, what, path)
	}
	return c.protect(what, &path)
}

// protectProgram protects this program, which root starts again.
func (c *config) protectProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.protect("the program", &self)
}

// protectTunnel protects what the executor reads or starts, as root, to open the tunnel.
func (c *config) protectTunnel() error {
	switch c.tunnel.kind {
	case tunnelSSH:
		self, err := user.Current()
		if err != nil {
			return err
		}
		folder, hosts := filepath.Join(self.HomeDir, ".ssh"), c.tunnel.ssh.KnownHosts // ssh ignores HOME
		return errors.Join(
			c.protectOnPath("ssh"),
			c.protectSecretFile("--ssh-key", c.tunnel.ssh.KeyFile),
			c.protect("the folder of SSH keys and known hosts", &folder),
			c.protect("--ssh-known-hosts", &hosts),
		)
	case tunnelCloudflared:
		return c.protectOnPath("cloudflared")
	}
	return nil
}

func (c *config) protectOnPath(name string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil // the tunnel reports it
	}
	return c.protect("the program", &program)
}

// Environment variables that say how a tunnel is opened.
const (
	envNgrokToken  = "NGROK_AUTHTOKEN"
	envNgrokServer = "COLAB_RELAY_NGROK_SERVER"
	envNgrokCA     = "COLAB_RELAY_NGROK_CA"
)

// maxAllowed bounds --allow-cidr: each request is compared with every range, and
// ngrok accepts only policies of limited size.
const maxAllowed = 100

// tunnelKind is a value of --tunnel.
type tunnelKind string

const (
	tunnelNgrok       tunnelKind = "ngrok"
	tunnelSSH         tunnelKind = "ssh"
	tunnelCloudflared tunnelKind = "cloudflared"
	tunnelNone        tunnelKind = "none"
)

// tunnelFlags are the flags that apply to one kind only.
var tunnelFlags = map[string]tunnelKind{
	"domain": tunnelNgrok,
	"ssh":    tunnelSSH, "ssh-key": tunnelSSH, "ssh-known-hosts": tunnelSSH, "ssh-accept-new": tunnelSSH,
	"ssh-remote": tunnelSSH, "ssh-url": tunnelSSH,
}

// tunnelConfig says which tunnel to open. The fields of other kinds are ignored.
type tunnelConfig struct {
	kind   tunnelKind
	asked  bool           // by --tunnel
	allow  []netip.Prefix // visitors outside these ranges are refused; empty allows all
	ngrok  ngrok.Config
	ssh    child.SSH
	getenv func(string) string
}

// newTunnel makes the tunnel, which is nil for the kind none. It opens nothing.
func (c tunnelConfig) newTunnel(log *slog.Logger) (tunnel.Tunnel, error) {
	switch c.kind {
	case tunnelNgrok:
		c.ngrok.Allow, c.ngrok.Log = c.allow, log
		return ngrok.New(c.ngrok)
	case tunnelSSH:
		c.ssh.Getenv, c.ssh.Log = c.getenv, log
		return child.NewSSH(c.ssh)
	case tunnelCloudflared:
		return child.NewCloudflared(c.getenv, log), nil
	}
	return nil, nil
}

// addFlags defines the flags of the tunnels.
func (c *tunnelConfig) addFlags(flags *flag.FlagSet) {
	flags.StringVar((*string)(&c.kind), "tunnel", "", "")
	flags.StringVar(&c.ngrok.Domain, "domain", "", "")
	flags.StringVar(&c.ssh.Server, "ssh", "", "")
	flags.StringVar(&c.ssh.KeyFile, "ssh-key", "", "")
	flags.StringVar(&c.ssh.KnownHosts, "ssh-known-hosts", "", "")
	flags.BoolVar(&c.ssh.AcceptNew, "ssh-accept-new", false, "")
	flags.StringVar(&c.ssh.Remote, "ssh-remote", "", "")
	flags.StringVar(&c.ssh.URL, "ssh-url", "", "")
	flags.Func("allow-cidr", "", func(text string) error {
		prefix, err := tunnel.ParseCIDR(text)
		c.allow = append(c.allow, prefix)
		return err
	})
}

// finish reads the rest from the environment, and checks all of it.
func (c *tunnelConfig) finish(flags *flag.FlagSet, getenv func(string) string) error {
	c.ngrok.Version = version
	c.ngrok.Token = strings.TrimSpace(getenv(envNgrokToken))
	c.ngrok.Server = getenv(envNgrokServer)
	c.ngrok.Proxy = http.ProxyFromEnvironment
	c.getenv = getenv
	c.asked = c.kind != ""
	if err := c.chooseKind(); err != nil {
		return err
	}
	faults := []error{c.misplaced(flags)}
	if len(c.allow) > maxAllowed {
		faults = append(faults, fmt.Errorf("--allow-cidr: %d ranges are too many; at most %d are allowed", len(c.allow), maxAllowed))
	}
	switch {
	case c.kind == tunnelNgrok && c.ngrok.Token == "":
		faults = append(faults, fmt.Errorf("--tunnel ngrok: %s is not set; copy the token from https://dashboard.ngrok.com/get-started/your-authtoken", envNgrokToken))
	case c.kind == tunnelSSH && c.ssh.Server == "":
		faults = append(faults, errors.New("--tunnel ssh: name the server with --ssh [user@]host[:port]"))
	default:
		faults = append(faults, c.check())
	}
	return errors.Join(faults...)
}

// check checks the settings that the kind's own package knows.
func (c *tunnelConfig) check() error {
	t, err := c.newTunnel(nil)
	if err != nil {
		return err
	}
	if t != nil && len(c.allow) > 0 && !t.ReportsVisitor() {
		return errors.New("--allow-cidr: ssh does not report the addresses of visitors; restrict them on the server itself")
	}
	return nil
}

// chooseKind checks the value of --tunnel. Without one, the kind is ngrok if
// there is an authtoken, and none otherwise.
func (c *tunnelConfig) chooseKind() error {
	switch c.kind {
	case tunnelNgrok, tunnelSSH, tunnelCloudflared, tunnelNone:
	case "":
		c.kind = tunnelNone
		if c.ngrok.Token != "" {
			c.kind = tunnelNgrok
		}
	default:
		return fmt.Errorf("--tunnel %s: must be ngrok, ssh, cloudflared or none", c.kind)
	}
	return nil
}

// misplaced finds flags that the chosen kind would ignore.
func (c *tunnelConfig) misplaced(flags *flag.FlagSet) error {
	var faults []error
	flags.Visit(func(f *flag.Flag) {
		kind, ofOneKind := tunnelFlags[f.Name]
		if !ofOneKind || kind == c.kind {
			return
		}
		hint := "add --tunnel " + string(kind)
		if kind == tunnelNgrok {
			hint = "set " + envNgrokToken
		}
		faults = append(faults, fmt.Errorf("--%s %s: applies to the tunnel %s only; %s", f.Name, f.Value, kind, hint))
	})
	return errors.Join(faults...)
}
