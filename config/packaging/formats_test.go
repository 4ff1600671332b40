package main

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var placeholder = regexp.MustCompile(`@[A-Z0-9_]+@`)

// machO returns the smallest program for macOS: a header without contents, and a body.
func machO(cpu macho.Cpu, subCPU uint32, body string) []byte {
	var file bytes.Buffer
	header := []uint32{macho.Magic64, uint32(cpu), subCPU, uint32(macho.TypeExec), 0, 0, 0, 0}
	_ = binary.Write(&file, binary.LittleEndian, header) // a buffer accepts all
	file.WriteString(body)
	return file.Bytes()
}

func TestTheUniversalProgramHoldsBothUnchanged(t *testing.T) {
	both := [][]byte{machO(macho.CpuAmd64, 3, strings.Repeat("amd64 ", 5000)), machO(macho.CpuArm64, 0, "arm64")}
	file, err := fat(both...)
	must(t, err)
	read, err := macho.NewFatFile(bytes.NewReader(file))
	must(t, err)
	if len(read.Arches) != 2 || read.Arches[0].Cpu != macho.CpuAmd64 || read.Arches[0].SubCpu != 3 || read.Arches[1].Cpu != macho.CpuArm64 {
		t.Fatalf("it has the processors %v", read.Arches)
	}
	for i, arch := range read.Arches {
		if arch.Offset%(1<<14) != 0 || arch.Align != 14 {
			t.Errorf("%v begins at %d, not at a page", arch.Cpu, arch.Offset)
		}
		if !bytes.Equal(file[arch.Offset:arch.Offset+arch.Size], both[i]) {
			t.Errorf("%v was changed", arch.Cpu)
		}
	}
}

func TestWhatIsNoProgramForMacOSIsRefused(t *testing.T) {
	if _, err := fat([]byte("#!/bin/sh\n")); err == nil {
		t.Error("a script became a universal program")
	}
}

// The record lists every file of the wheel, with digests that other tools compute too.
func TestAWheelsRecordIsComplete(t *testing.T) {
	for name, data := range madeOf(t, sample("v1.2.3", "")) {
		if filepath.Ext(name) != ".whl" {
			continue
		}
		files := unpacked(t, name, data)
		base, _, _ := strings.Cut(name, "-py3-")
		record := string(files[base+".dist-info/RECORD"].data)
		if got := strings.Count(record, "\n"); got != len(files) {
			t.Errorf("%s: the record has %d lines for %d files:\n%s", name, got, len(files), record)
		}
		for file := range files {
			if !strings.Contains("\n"+record, "\n"+file+",") {
				t.Errorf("%s: %s is not in the record", name, file)
			}
		}
		tags := strings.TrimSuffix(name[strings.LastIndex(name, "-")+1:], ".whl")
		for tag := range strings.SplitSeq(tags, ".") {
			if !strings.Contains(string(files[base+".dist-info/WHEEL"].data), "\nTag: py3-none-"+tag+"\n") {
				t.Errorf("%s: WHEEL does not name the tag %s", name, tag)
			}
		}
	}
}

// uv and pipx install what a wheel requires into its environment, where the executor looks first.
func TestTheExecutorsWheelBringsIPyKernel(t *testing.T) {
	r := sample("v1.2.3", "")
	seen := 0
	for name, data := range madeOf(t, r) {
		if filepath.Ext(name) != ".whl" {
			continue
		}
		base, _, _ := strings.Cut(name, "-py3-")
		metadata := string(unpacked(t, name, data)[base+".dist-info/METADATA"].data)
		ofExecutor := strings.HasPrefix(name, strings.ReplaceAll(r.executorPack, "-", "_")+"-")
		if ofExecutor {
			seen++
		}
		if strings.Contains(metadata, "\nRequires-Dist: ipykernel\n") != ofExecutor {
			t.Errorf("%s requires:\n%s", name, metadata)
		}
	}
	if seen == 0 {
		t.Error("no wheel of the executor was made")
	}
}

// By name, a dependency could be somebody else's package; by address, npm downloads all of them.
func TestTheNpmPackageForAllPlatformsHasNoDependencies(t *testing.T) {
	made := madeOf(t, sample("v1.2.3", address))
	files := unpacked(t, "x.tgz", made["some-relay-1.2.3.tgz"])
	var description map[string]any
	must(t, json.Unmarshal(files["package/package.json"].data, &description))
	for field := range description {
		if strings.Contains(strings.ToLower(field), "dependencies") {
			t.Errorf("it has %s: %v", field, description[field])
		}
	}
	for _, p := range npmPlatforms {
		name := "some-relay-" + p.name + "-1.2.3.tgz"
		if want := fmt.Sprintf("%q: %q", p.name, artifact{data: made[name]}.sha256()); !strings.Contains(string(files["package/bin/fetch.js"].data), want) {
			t.Errorf("fetch.js lacks the SHA-256 of %s", name)
		}
	}
}

func TestTheListsNameTheirPackages(t *testing.T) {
	made := madeOf(t, sample("v1.2.3", address))
	for list, file := range map[string]string{"server.json": "some-relay-1.2.3.mcpb", "marketplace.json": "colab-relay-claude-code-1.2.3.zip"} {
		for _, want := range []string{address + "/v1.2.3/" + file, artifact{data: made[file]}.sha256()} {
			if text := made[list]; !json.Valid(text) || !strings.Contains(string(text), want) {
				t.Errorf("%s is no JSON, or lacks %q:\n%s", list, want, text)
			}
		}
	}
	for url, want := range map[string]string{address: "io.github.someone/colab-relay", "https://downloads.example.org:8443/x": "org.example.downloads/colab-relay"} {
		if got := registryName(url); got != want {
			t.Errorf("the publisher at %s is named %q", url, got)
		}
	}
}

// thisTest returns the program that runs this test.
func thisTest(t *testing.T) []byte {
	t.Helper()
	name, err := os.Executable()
	must(t, err)
	program, err := os.ReadFile(name)
	must(t, err)
	return program
}
