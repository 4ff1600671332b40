package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// thirdParty returns the licences of Go and of all modules that are linked into the
// programs. Most of them ask that copies of the program come with their text.
func thirdParty(programs ...map[string][]byte) ([]byte, error) {
	var modules []string
	for _, byPlatform := range programs {
		for platform, program := range byPlatform {
			info, err := buildinfo.Read(bytes.NewReader(program))
			if err != nil {
				return nil, fmt.Errorf("the modules of the program for %q: %w", platform, err)
			}
			for _, module := range info.Deps {
				modules = append(modules, module.Path)
			}
		}
	}
	slices.Sort(modules)
	folders, err := sources(slices.Compact(modules))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.WriteString("\nThe programs contain the following software under its own terms.\n")
	for _, module := range folders {
		if err := writeLicence(&text, module[0], module[1]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// sources returns the name and folder of Go and of each module.
func sources(modules []string) ([][2]string, error) {
	root, err := goTool("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := [][2]string{{"Go and its standard library", root}}
	list, err := goTool(append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders = append(folders, [2]string{name, folder})
	}
	return folders, nil
}

func goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

var licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|copyright)([.-].*)?$`)

// writeLicence writes the licence files in a folder. A module without one fails the
// release: nothing permits to copy it.
func writeLicence(text *bytes.Buffer, name, folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the licence of %q: %w", name, err)
	}
	found := false
	for _, file := range files {
		if file.IsDir() || !licenceFile.MatchString(file.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return fmt.Errorf("the licence of %q: %w", name, err)
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("-", 80), name, file.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("the licence of %q: its source has none", name)
	}
	return nil
}
