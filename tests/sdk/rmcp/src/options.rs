//! The command line.

use std::time::Duration;

use serde_json::Value;

/// What the command line asks for.
pub struct Options {
    pub calls: Vec<(String, Value)>,
    pub repeat: usize,
    pub concurrent: bool,
    pub timeout: Option<Duration>,
    pub deadline: Duration,
    pub linger: Duration,
    pub reset: bool,
    pub progress: bool,
    pub auto: bool,
    pub protocol: Option<String>,
    pub url: Option<String>,
    pub headers: Vec<(String, String)>,
    pub command: String,
    pub args: Vec<String>,
}

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            calls: Vec::new(),
            repeat: 1,
            concurrent: false,
            timeout: None,
            deadline: Duration::from_secs(120),
            linger: Duration::from_millis(100),
            reset: false,
            progress: true,
            auto: false,
            protocol: None,
            url: None,
            headers: Vec::new(),
            command: String::new(),
            args: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => break,
                "--concurrent" => options.concurrent = true,
                "--reset" => options.reset = true,
                "--no-progress" => options.progress = false,
                _ => {
                    let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                    options.take(&word, &value)?;
                }
            }
        }
        options.command = words.next().unwrap_or_default();
        options.args = words.collect();
        if options.command.is_empty() == options.url.is_none() {
            return Err("one of --url and a command after -- is needed".to_owned());
        }
        Ok(options)
    }

    fn take(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word {
            "--call" => self.calls.push(parse_call(value)?),
            "--repeat" => self.repeat = value.parse().map_err(|_| "--repeat needs a number")?,
            "--timeout" => self.timeout = Some(seconds(word, value, 1.0)?),
            "--deadline" => self.deadline = seconds(word, value, 1.0)?,
            "--linger" => self.linger = seconds(word, value, 1000.0)?,
            "--negotiate" => self.auto = value == "auto",
            "--protocol" => self.protocol = Some(value.to_owned()),
            "--url" => self.url = Some(value.to_owned()),
            "--header" => {
                let (name, value) = value.split_once('=').ok_or("--header needs NAME=VALUE")?;
                self.headers.push((name.to_owned(), value.to_owned()));
            }
            "--sse" => return Err("the SDK has no HTTP+SSE transport".to_owned()),
            "--busy" => {} // TypeScript only
            _ => return Err(format!("unknown argument {word}")),
        }
        Ok(())
    }
}

fn seconds(word: &str, value: &str, per_second: f64) -> Result<Duration, String> {
    let number = value.parse::<f64>().map_err(|_| format!("{word} needs a number"))?;
    Duration::try_from_secs_f64(number / per_second).map_err(|error| format!("{word}: {error}"))
}

fn parse_call(text: &str) -> Result<(String, Value), String> {
    let Some((tool, args)) = text.split_once('=') else {
        return Ok((text.to_owned(), Value::Object(Default::default())));
    };
    let args = serde_json::from_str(args).map_err(|error| format!("--call {text}: {error}"))?;
    Ok((tool.to_owned(), args))
}
