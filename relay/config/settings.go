// Package config reads the relay's settings and checks them.
//
// It reports every wrong setting together, and never logs a secret. Start reading at
// Settings and Load.
package config

import "github.com/spf13/pflag"

// Settings reads one setting at a time: a flag if it is given, else the environment. An
// empty value counts as unset.
type Settings struct {
	Getenv func(string) string
	flags  map[string]*string // by the name of the environment variable
}

// flags are the settings that also have a flag. Secrets have none, because other users
// of a computer can see a program's arguments.
var flags = []struct{ name, variable, usage string }{
	{"url", "COLAB_URL", "the executor's public URL, used instead of a pairing"},
	{"secret-file", "COLAB_SECRET_FILE", "file that contains the executor's secret"},
	{"save-dir", "LOCAL_SAVE_DIR", "folder for downloads, pictures and long outputs"},
	{"checkpoint-dir", "CHECKPOINT_DIR", "folder for chunked runs, kernel states and saved answers"},
	{"hold", "RELAY_HOLD", "longest wait for a result, 1s to 230s (default 45s)"},
}

// AddFlags defines the flags of the settings.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	s.flags = map[string]*string{}
	for _, f := range flags {
		s.flags[f.variable] = fs.String(f.name, "", f.usage+"; env "+f.variable)
	}
}

// Get returns the setting with that environment variable, empty when it is not set.
func (s Settings) Get(variable string) string {
	if v := s.flags[variable]; v != nil && *v != "" {
		return *v
	}
	return s.Getenv(variable)
}
