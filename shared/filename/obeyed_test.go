package filename

import "testing"

func TestObeyed(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".envrc": true, ".mcp.json": true, ".vscode": true, ".x": true, "\u200d.env": true, ".g\u200cit": true, ".git. .": true,
		"CLAUDE.md": true, "claude.MD": true, "CLAUDE.md. ": true, "CLA\u200dUDE.md": true, "AGENTS.md": true, "agentſ.md": true, "gemini.md": true, "CLAUDE.local.md": true,
		"opencode.json": true, "GIT~1": true, "git~12": true, "MCP~1.JSO": true, "GI7EBA~1": true,
		"": false, "git": false, "a.git": false, "README.md": false, "CLAUDE.md.txt": false, "my CLAUDE.md": false, "CLAUDE": false, "agents.mdx": false,
		"env": false, "~": false, "a~": false, "file~": false, "report~1.html": false, "longname~1": false, "conftest.py": false, "Makefile": false, " .git": false,
	} {
		if Obeyed(name) != want {
			t.Errorf("Obeyed(%q) is %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"HEAD": true, "head": true, "HEAD. ": true, "HE\u200dAD": true, ".git": true, "HEAD.md": false, "config": false, "ahead": false} {
		if ObeyedFile(name) != want {
			t.Errorf("ObeyedFile(%q) is %v", name, !want)
		}
	}
	if Obeyed("HEAD") {
		t.Error("a folder named HEAD is left out")
	}
	for path, want := range map[string]string{"a/b": "", "./a": "", ".": "", "a/.b/c": ".b", "a/CLAUDE.md": "CLAUDE.md", ".a/.b": ".a"} {
		if got := ObeyedPart(path); got != want {
			t.Errorf("ObeyedPart(%q) is %q, want %q", path, got, want)
		}
	}
}
