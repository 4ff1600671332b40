package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"colabrelay/executor/audit"
	"colabrelay/executor/files"
)

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
