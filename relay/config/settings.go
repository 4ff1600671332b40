// Package config reads the relay's settings and checks them.
//
// It reports every wrong setting together, and never logs a secret. Start reading at
// Settings and Load.
package config

import (
	"slices"

	"github.com/spf13/pflag"

	"colabrelay/relay/toolsets"
)

// Settings reads one setting at a time: a flag if it is given, else the environment. An
// empty value counts as unset.
type Settings struct {
	Getenv func(string) string
	flags  map[string]*string // by the name of the environment variable
}

// Setting describes a setting.
type Setting struct {
	Variable string // of the environment
	Flag     string // without dashes; empty if it has none
	Usage    string
}

// All lists the settings. Secrets have no flag, because other users of a computer can see
// a program's arguments.
var All = []Setting{
	{"COLAB_URL", "url", "use the executor at this `URL` instead of a paired one"},
	{"COLAB_SECRET", "", "the executor's secret, needed with COLAB_URL"},
	{"COLAB_SECRET_FILE", "secret-file", "read the executor's secret from this `FILE` instead"},
	{"COLAB_PAIRING", "", "the pairing string that the executor printed, instead of COLAB_URL and COLAB_SECRET"},
	{"RELAY_PAIRING_FIELD", "", "name of the field for COLAB_PAIRING in the settings of an MCP host's extension; for computers without the command colab-relay"},
	{"NGROK_AUTHTOKEN", "", "authtoken of your ngrok account, for the tunnels of executors that the relay starts"},
	{"NGROK_AUTHTOKEN_FILE", "", "read the authtoken from this file instead, which only you may read"},
	{"NGROK_DOMAIN", "", "static domain of your ngrok account, for those tunnels"},
	{"COLAB_RELAY_RELEASE_URL", "", "folder with the release's files, from which VMs fetch the executor (default: this relay's own release)"},
	{"LOCAL_SAVE_DIR", "save-dir", "save downloads, pictures and long outputs in this `FOLDER` (default ~/colab_results)"},
	{"CHECKPOINT_DIR", "checkpoint-dir", "keep checkpoints, kernel states and unfinished transfers in this `FOLDER`"},
	{"RELAY_HOLD", "hold", "let a tool call wait for at most this `TIME`, 1s to 230s (default 45s)"},
	{"RELAY_LONG_WAIT", "", "longest wait_seconds of get_execution in Claude Code, which works on meanwhile and tells the model when the answer comes, 1s to 24h (default 10m)"},
	{"RELAY_STRUCTURED", "", "set to on to add JSON to every answer, for programs; most hosts then show the model the JSON instead of the text (default off)"},
	{"RELAY_TOOLSETS", "toolsets", "serve these `SETS` of tools: " + toolsets.Names("or", "all") + ", separated by commas (default core, and notebook where notebooks are)"},
	{"RELAY_NOTEBOOK_DIRS", "", "folders outside your home folder in which tools may use notebooks, separated as in PATH"},
	{"RELAY_DOWNLOAD_DIRS", "", "folders beside LOCAL_SAVE_DIR in which tools may save downloads, separated as in PATH (default the host's project folder)"},
	{"RELAY_PAGE_PORT", "page-port", "let Colab's page connect to this `PORT` of this computer, 1024 to 65535; an SSH forward needs one (default a free port)"},
	{"RELAY_TEXT_LIMIT", "", "characters of a run's text in one answer, 1000 to 40000 (default 6000)"},
	{"RELAY_PICTURES", "", "show, path for the files' names only, or the kilobytes of the largest picture in an answer (default show; path in google-adk and ai-sdk-mcp-client, which make text of pictures)"},
	{"RELAY_HISTORY", "", "megabytes of past runs to keep on this computer, or off (default 200)"},
	{"RELAY_KEEP_EVERY", "", "shortest time between two saves of a chunked run's variables (default 30s)"},
	{"RELAY_KEEP_PERCENT", "", "largest share of a chunked run's time that such saves take (default 5)"},
	{"RELAY_KEEP_MB", "", "largest such save in MB; 0 saves nothing (default 64)"},
	{"RELAY_KEEP_TUNNEL_MB", "", "largest sum of such saves in MB per run through a tunnel (default 100)"},
	{"RELAY_UPLOAD_ALLOW", "", "paths that may be uploaded although they look like keys, separated as in PATH"},
}

// AddFlags defines the flags of the settings with these variables, of all without any. A
// flag that several commands have sets the same setting.
func (s *Settings) AddFlags(fs *pflag.FlagSet, variables ...string) {
	if s.flags == nil {
		s.flags = map[string]*string{}
	}
	for _, each := range All {
		if each.Flag == "" || len(variables) > 0 && !slices.Contains(variables, each.Variable) {
			continue
		}
		if s.flags[each.Variable] == nil {
			s.flags[each.Variable] = new(string)
		}
		fs.StringVar(s.flags[each.Variable], each.Flag, "", each.Usage+"; env "+each.Variable)
	}
}

// Get returns the setting with that environment variable, empty when it is not set.
func (s Settings) Get(variable string) string {
	if v := s.flags[variable]; v != nil && *v != "" {
		return *v
	}
	return s.Getenv(variable)
}
