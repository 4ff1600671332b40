package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestTheReadyFileIsReplacedAndRemoved(t *testing.T) {
	f := readyFile{path: filepath.Join(t.TempDir(), "ready.json")}
	must(t, f.write(readyInfo{URL: "http://a"}))
	info, err := os.Stat(f.path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v: it holds the secret", info.Mode().Perm())
	}
	must(t, f.write(readyInfo{URL: "http://b"}))
	raw, err := os.ReadFile(f.path)
	must(t, err)
	var got readyInfo
	if err := json.Unmarshal(raw, &got); err != nil || got.URL != "http://b" {
		t.Errorf("content is %s: %v", raw, err)
	}
	must(t, os.Remove(f.path))
	must(t, f.write(readyInfo{URL: "http://c"})) // its reader removed it
	if _, err := os.Stat(f.path); err == nil {
		t.Error("a file that its reader removed is back")
	}
	f.remove()
	must(t, f.write(readyInfo{})) // from a tunnel that was ready late
	left, err := os.ReadDir(filepath.Dir(f.path))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAReadyFileOfAnotherProgramIsKept(t *testing.T) {
	f := readyFile{path: filepath.Join(t.TempDir(), "ready.json")}
	must(t, os.WriteFile(f.path, nil, 0o600))
	f.remove()
	if _, err := os.Stat(f.path); err != nil {
		t.Error(err)
	}
}
