"""Roads into OpenVINO IR. Each conversion is loaded and compared with recorded numbers, or it failed."""
